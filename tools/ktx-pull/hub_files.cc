#include "tools/ktx-pull/hub_files.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <nlohmann/json.hpp>

#include "lib/support/json_nesting.h"
#include "lib/support/shard_names.h"
#include "lib/support/strings.h"
#include "lib/support/text_table.h"

namespace ktx::tools {
namespace {

using nlohmann::json;

constexpr int kMostNesting = 64;
constexpr uint64_t kMostBytes = uint64_t{1} << 50;
constexpr const char* kUsual = "Q4_K_M";

std::string lower(std::string_view text) {
  std::string out(text);
  for (char& c : out) {
    if (c >= 'A' && c <= 'Z') c = static_cast<char>(c + 32);
  }
  return out;
}

bool is_hex(const std::string& text, size_t digits) {
  return text.size() == digits && text.find_first_not_of("0123456789abcdef") == text.npos;
}

// Below the model's folder, whatever stands in it.
bool is_safe_path(const std::string& path) {
  if (path.empty() || path.size() > 1024) return false;
  for (const std::string_view part : split(path, '/')) {
    if (part.empty() || part.front() == '.' || part.size() > 200) return false;
  }
  const auto odd = [](char c) {
    return static_cast<unsigned char>(c) < 0x20 || c == 0x7f || c == '\\';
  };
  return std::ranges::none_of(path, odd);
}

std::string text_at(const json& object, const char* key) {
  const auto found = object.find(key);
  return found != object.end() && found->is_string() ? found->get<std::string>() : "";
}

uint64_t number_at(const json& object, const char* key) {
  const auto found = object.find(key);
  return found != object.end() && found->is_number_unsigned() ? found->get<uint64_t>() : 0;
}

// "d/m-Q4_K_M-00001-of-00002.gguf" -> "d/m-Q4_K_M": files of one model have it in common.
std::string model_of(const std::string& path) {
  const auto shard = parse_shard_name(path);
  return shard ? shard->prefix : path.substr(0, path.size() - std::string_view(".gguf").size());
}

// Projectors of images and importance matrices are GGUFs and no models.
bool is_model(const std::string& path) {
  const std::string name = lower(path.substr(path.rfind('/') + 1));
  return name.ends_with(".gguf") && name.find("mmproj") == name.npos &&
         name.find("imatrix") == name.npos;
}

bool ends_with_quant(const std::string& model, const std::string& quant) {
  const std::string name = lower(model), end = lower(quant);
  if (name == end) return true;
  if (!name.ends_with(end)) return false;
  const char before = name[name.size() - end.size() - 1];
  return before == '-' || before == '.' || before == '_' || before == '/';
}

// "d/n-Q8_0" of hf:o/n-GGUF:Q8_0, or "d/other-Q8_0" of hf:o/n-GGUF:OTHER-Q8_0.
bool is_exactly(const std::string& model, const std::string& quant, const std::string& repository) {
  std::string start = lower(repository);
  if (start.ends_with("-gguf")) start.resize(start.size() - 5);
  const std::string own = lower(model.substr(model.rfind('/') + 1)), end = lower(quant);
  return own == start + "-" + end || own == end;
}

using Models = std::map<std::string, std::vector<HubFile>>;

std::string names_of(const Models& models) {
  constexpr size_t kMost = 30;
  std::vector<std::string> names;
  for (const auto& [name, files] : models) {
    if (names.size() == kMost) break;
    names.push_back(fmt::format("{} ({})", printable(name), human_bytes(bytes_of(files))));
  }
  const std::string more = models.size() > kMost ? ", ..." : "";
  return join(names, ", ") + more;
}

// One file that is no shard, or all shards of one count: `files` are sorted by path.
Status check_whole(const std::string& name, const std::vector<HubFile>& files) {
  const auto first = parse_shard_name(files.front().path);
  if (!first && files.size() == 1) return {};
  const uint64_t count = first ? first->count : 1;
  bool whole = files.size() == count;
  for (size_t i = 0; whole && i < files.size(); ++i) {
    const auto shard = parse_shard_name(files[i].path);
    whole = shard && shard->count == count && shard->number == i + 1;
  }
  if (whole) return {};
  if (files.size() < count) {
    return Error{fmt::format("{}: the hub has {} of its {} shards; choose another file",
                             printable(name), files.size(), count)};
  }
  return Error{
      fmt::format("{}: the hub has files of this name that are not the shards of one "
                  "model; choose another file",
                  printable(name))};
}

}  // namespace

Result<HubListing> read_listing(std::string_view text, const std::string& model) {
  const Error odd{fmt::format(
      "{}: the hub's answer is not a list of files; HF_ENDPOINT may name something else", model)};
  if (json_nesting(text) > kMostNesting || json_tree_bytes(text) > kMaxTreeBytes) return odd;
  const json answer = json::parse(text, nullptr, false);
  if (!answer.is_object()) return odd;
  HubListing listing;
  listing.commit = text_at(answer, "sha");
  const auto siblings = answer.find("siblings");
  if (!is_hex(listing.commit, 40) || siblings == answer.end() || !siblings->is_array()) return odd;
  for (const json& item : *siblings) {
    if (!item.is_object()) return odd;
    HubFile file;
    file.path = text_at(item, "rfilename");
    if (!is_model(file.path)) continue;
    if (!is_safe_path(file.path)) {
      return Error{fmt::format("{}: the hub has a file of the name '{}', which may not be written",
                               model, printable(file.path))};
    }
    const auto lfs = item.find("lfs");
    if (lfs != item.end() && lfs->is_object()) {
      file.bytes = number_at(*lfs, "size");
      file.sha256 = text_at(*lfs, "sha256");
    }
    if (file.bytes == 0 || file.bytes > kMostBytes || !is_hex(file.sha256, 64)) {
      return Error{
          fmt::format("{}: the hub gives no size and SHA-256 of {}; what cannot be "
                      "checked is not fetched",
                      model, printable(file.path))};
    }
    listing.ggufs.push_back(std::move(file));
  }
  std::ranges::sort(listing.ggufs, {}, &HubFile::path);
  const auto twice = std::ranges::adjacent_find(listing.ggufs, {}, &HubFile::path);
  if (twice != listing.ggufs.end()) {
    return Error{fmt::format("{}: the hub lists {} twice", model, printable(twice->path))};
  }
  return listing;
}

Result<std::vector<HubFile>> choose_files(const HubListing& listing, const std::string& quant,
                                          const std::string& repository, const std::string& model) {
  Models models;
  for (const HubFile& file : listing.ggufs) models[model_of(file.path)].push_back(file);
  if (models.empty()) {
    return Error{
        fmt::format("{} has no GGUF, and weights are read from one; look for a repository "
                    "of the same name with -GGUF",
                    model)};
  }
  const std::string name = quant.empty() ? kUsual : quant;
  Models fit, exact;
  for (const auto& [own, files] : models) {
    if (ends_with_quant(own, name)) fit.emplace(own, files);
    if (is_exactly(own, name, repository)) exact.emplace(own, files);
  }
  if (fit.size() > 1 && exact.size() == 1) fit = exact;
  if (quant.empty() && fit.empty() && models.size() == 1) fit = models;
  if (fit.size() == 1) {
    KTX_TRY(check_whole(fit.begin()->first, fit.begin()->second));
    return fit.begin()->second;
  }
  if (fit.empty()) {
    return Error{fmt::format("{} has no GGUF of {}; it has {}", model, name, names_of(models))};
  }
  return Error{fmt::format("{} has several GGUFs of {}; name one with more of its end: {}", model,
                           name, names_of(fit))};
}

uint64_t bytes_of(const std::vector<HubFile>& files) {
  uint64_t sum = 0;
  for (const HubFile& file : files) sum += file.bytes;
  return sum;
}

std::string list_text(const std::vector<HubFile>& files, std::string_view indent) {
  TextTable table({{"", TextTable::Left}, {""}});
  for (const HubFile& file : files) table.add({printable(file.path, 200), human_bytes(file.bytes)});
  return table.plain(indent);
}

}  // namespace ktx::tools
