// The Python face of the fused sampler.
#include <nanobind/nanobind.h>

void bind_sampler(nanobind::module_&) {}
