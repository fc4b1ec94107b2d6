"""A model's name -> its file on this machine, fetched when it is missing."""

from outpace.models.catalogue import CatalogueModel, catalogue
from outpace.models.drafts import DraftChoice, drafts_for
from outpace.models.exporting import export
from outpace.models.pulling import pull
from outpace.models.resolving import resolve
from outpace.models.store import Listed, cache_folder, list_models, path, remove

__all__ = [
    "CatalogueModel",
    "DraftChoice",
    "Listed",
    "cache_folder",
    "catalogue",
    "drafts_for",
    "export",
    "list_models",
    "path",
    "pull",
    "remove",
    "resolve",
]
