#include "lib/families/class_names.h"

#include <fmt/format.h>

#include <algorithm>
#include <string_view>

#include "lib/support/strings.h"

namespace ktx::families {
namespace {

std::string replace_prefix(std::string_view word, const Family& family) {
  constexpr std::string_view kMark = "{P}";
  const std::string prefix = family.class_prefix();
  std::string out(word);
  for (size_t at = 0; (at = out.find(kMark, at)) != std::string::npos; at += prefix.size()) {
    out.replace(at, kMark.size(), prefix);
  }
  return out;
}

// "K.{P}MLP" -> "ktransformers.models.modeling_llama.LlamaMLP"; "" when T is none.
std::string expand_class(std::string_view word, const Family& family) {
  const std::string out = replace_prefix(word, family);
  if (out.starts_with("K.")) return family.class_module() + out.substr(1);
  if (!out.starts_with("T.")) return out;
  return family.module_t[0] == '\0' ? "" : family.module_t + out.substr(1);
}

std::vector<std::string> expand_list(const char* words, const Family& family) {
  std::vector<std::string> out;
  for (std::string_view word : split(words, ' ')) {
    std::string name = expand_class(word, family);
    if (!name.empty()) out.push_back(std::move(name));
  }
  return out;
}

void add_own(std::string_view word, const Family& family, std::vector<std::string>& classes) {
  if (word.starts_with("K.") || word.starts_with("T.")) word.remove_prefix(2);
  if (!word.starts_with("{P}")) return;
  std::string name = replace_prefix(word, family);
  if (std::ranges::find(classes, name) == classes.end()) classes.push_back(std::move(name));
}

}  // namespace

ClassNames class_names(const ClassRow& row, const Family& family) {
  ClassNames out;
  const std::string_view name = row.name;
  if (name.find('.') != std::string_view::npos) {
    out.name = name;
  } else {
    out.name = expand_class(fmt::format("K.{}", name), family);
    out.aliases.push_back(expand_class(name, family));
    if (row.in_transformers && family.module_t[0] != '\0') {
      out.aliases.push_back(expand_class(fmt::format("T.{}", name), family));
    }
  }
  for (std::string& alias : expand_list(row.aliases, family)) {
    out.aliases.push_back(std::move(alias));
  }
  out.bases = expand_list(row.bases, family);
  return out;
}

std::vector<std::string> own_classes(const Family& family) {
  std::vector<std::string> classes;
  for (std::span<const ModuleRow> stretch : family.rows.tree) {
    for (const ModuleRow& row : stretch) {
      const std::string_view name = row.row_class->name;
      const bool without_prefix = name.find_first_of(".{") == name.npos;  // "MoEGate"
      add_own(name, family, classes);
      if (without_prefix && std::ranges::find(classes, name) == classes.end()) {
        classes.emplace_back(name);
      }
      for (std::string_view words : {row.row_class->aliases, row.row_class->bases}) {
        for (std::string_view word : split(words, ' ')) add_own(word, family, classes);
      }
    }
  }
  for (std::string_view word : split(family.more_classes, ' ')) add_own(word, family, classes);
  return classes;
}

}  // namespace ktx::families
