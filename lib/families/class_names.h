// The names of a family's classes, with the shorthands of its rows written out.
#pragma once

#include <string>
#include <vector>

#include "lib/families/family.h"

namespace ktx::families {

struct ClassNames {
  std::string name;  // "ktransformers.models.modeling_llama.LlamaMLP"
  std::vector<std::string> aliases;
  std::vector<std::string> bases;
};
ClassNames class_names(const ClassRow& row, const Family& family);

// The classes that the family's own modules define, without the module, each once: those
// of the tree, their aliases and bases, and more_classes. torch's are not among them.
std::vector<std::string> own_classes(const Family& family);

}  // namespace ktx::families
