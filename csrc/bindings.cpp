// The Python module `_native`: one file for each subject.

#include <nanobind/nanobind.h>

namespace nb = nanobind;

void bind_contexts(nb::module_& module);  // bindings_contexts.cpp
void bind_head(nb::module_& module);      // bindings_head.cpp
void bind_matrix(nb::module_& module);    // bindings_matrix.cpp
void bind_model(nb::module_& module);     // bindings_model.cpp
void bind_sampler(nb::module_& module);   // bindings_sampler.cpp

NB_MODULE(_native, module) {
  nb::set_leak_warnings(false);  // a program may hold a model to its end
  module.doc() =
      "The C++ engine: matrices, models, the fused sampler, counts of what followed what, and what the machine can do.";
  bind_contexts(module);
  bind_matrix(module);
  bind_model(module);
  bind_sampler(module);
  bind_head(module);
}
