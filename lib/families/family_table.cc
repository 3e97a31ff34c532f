// The table of families.
#include <fmt/format.h>

#include "lib/families/tree_rows.h"
#include "lib/support/strings.h"

namespace ktx::families {

std::span<const Family* const> all_families() {
  static constexpr const Family* kAll[] = {
#define KTX_FAMILY(symbol) &symbol,
#include "lib/families/family_table.def"
#undef KTX_FAMILY
  };
  return kAll;
}

const Family* find_architecture(std::string_view architecture) {
  for (const Family* family : all_families()) {
    if (family->architecture == architecture) return family;
  }
  return nullptr;
}

const Family* find_model_type(std::string_view model_type) {
  for (const Family* family : all_families()) {
    for (std::string_view type : split(family->model_types, ' ')) {
      if (type == model_type) return family;
    }
  }
  return nullptr;
}

const Family* find_draft_head(std::string_view gguf_arch) {
  for (const Family* family : all_families()) {
    if (family->is_draft_head() && family->gguf_arch == gguf_arch) return family;
  }
  return nullptr;
}

std::vector<const Family*> towers_of(std::string_view gguf_arch) {
  std::vector<const Family*> found;
  for (const Family* family : all_families()) {
    if (family->is_tower() && family->gguf_arch == gguf_arch) found.push_back(family);
  }
  return found;
}

const Family* find_family(std::string_view model_type, std::span<const std::string> architectures) {
  if (const Family* family = find_model_type(model_type)) return family;
  for (const std::string& architecture : architectures) {
    if (const Family* family = find_architecture(architecture)) return family;
  }
  return nullptr;
}

std::string_view Family::first_model_type() const {
  const std::string_view types = model_types;
  return types.substr(0, types.find(' '));
}

std::string Family::class_prefix() const {
  const std::string_view name = architecture;
  return std::string(prefix[0] != '\0' ? prefix : name.substr(0, name.rfind("ForCausalLM")));
}

std::string Family::class_module() const {
  if (module_k[0] != '\0') return module_k;
  return fmt::format("transformers.models.{0}.modeling_{0}", first_model_type());
}

const ModuleRow* Family::find_row(ir::Role role) const {
  for (std::span<const ModuleRow> stretch : rows.tree) {
    for (const ModuleRow& row : stretch) {
      if (row.role == role) return &row;
    }
  }
  return nullptr;
}

const ConfigKey* Family::find_gguf_key(std::string_view gguf_key) const {
  for (std::span<const ConfigKey> stretch : rows.keys) {
    for (const ConfigKey& row : stretch) {
      if (row.gguf_key == gguf_key) return &row;
    }
  }
  return nullptr;
}

const ConfigKey* Family::find_config_key(std::string_view key) const {
  for (std::span<const ConfigKey> stretch : rows.keys) {
    for (const ConfigKey& row : stretch) {
      if (row.key == key) return &row;
    }
  }
  return nullptr;
}

const char* Family::find_default(std::string_view key) const {
  const auto row = std::ranges::find(rows.defaults, key, &ConfigDefault::key);
  return row == rows.defaults.end() ? nullptr : row->value;
}

}  // namespace ktx::families
