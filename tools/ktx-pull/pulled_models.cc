#include "tools/ktx-pull/pulled_models.h"

#include <fmt/format.h>
#include <strings.h>

#include <algorithm>
#include <filesystem>
#include <nlohmann/json.hpp>

#include "lib/plan_cache/cache_folder.h"
#include "lib/support/mapped_file.h"
#include "lib/support/write_failure.h"
#include "lib/support/write_file.h"

namespace ktx::tools {
namespace {

namespace fs = std::filesystem;
using nlohmann::ordered_json;

constexpr const char* kNotes = "/pulled.json";

std::string key_of(const HubModel& model) {
  return fmt::format("{}:{}", model.revision, model.quant);
}

ordered_json read_notes(const std::string& folder) {
  const Result<std::string> text = read_text_file(folder + kNotes, 16 << 20);
  ordered_json notes = ordered_json::parse(text ? *text : "{}", nullptr, false);
  return notes.is_object() ? notes : ordered_json::object();
}

Status write_notes(const std::string& folder, const ordered_json& notes) {
  const std::string text = notes.dump(2, ' ', false, ordered_json::error_handler_t::replace);
  return replace_file(folder + kNotes, "", text + "\n", 0600);
}

// Nothing where a note is damaged.
std::optional<HubFile> file_of(const ordered_json& note) {
  if (!note.is_object() || !note.contains("path") || !note.contains("bytes") ||
      !note.contains("sha256") || !note["path"].is_string() ||
      !note["bytes"].is_number_unsigned() || !note["sha256"].is_string()) {
    return std::nullopt;
  }
  return HubFile{note["path"].get<std::string>(), note["bytes"].get<uint64_t>(),
                 note["sha256"].get<std::string>()};
}

std::vector<HubFile> files_of(const ordered_json& entry) {
  std::vector<HubFile> files;
  if (!entry.is_object() || !entry.contains("files") || !entry["files"].is_array()) return files;
  for (const ordered_json& note : entry["files"]) {
    const auto file = file_of(note);
    if (!file) return {};
    files.push_back(*file);
  }
  return files;
}

bool is_same(const HubFile& a, const HubFile& b) {
  return a.path == b.path && a.sha256 == b.sha256;
}

bool is_of(const ordered_json& entry, const std::string& path) {
  const std::vector<HubFile> files = files_of(entry);
  return !files.empty() && files.front().path == path;
}

// Notes it of a file, by whichever names it was pulled.
void set_for_plan(ordered_json& notes, const std::string& path, bool for_plan) {
  for (ordered_json& entry : notes) {
    if (is_of(entry, path)) entry["for_plan"] = for_plan;
  }
}

// The folder of this name in any case: the one that is there, else the name as it is.
std::string folder_in_any_case(const std::string& parent, const std::string& name) {
  std::error_code missing;
  std::string found = parent + "/" + name;
  if (fs::is_directory(found, missing)) return found;
  for (const auto& entry : fs::directory_iterator(parent, missing)) {
    const std::string other = entry.path().filename();
    if (strcasecmp(other.c_str(), name.c_str()) == 0) found = entry.path();
  }
  return found;
}

Result<std::string> with_folders(const std::string& path) {
  std::error_code failed;
  fs::create_directories(fs::path(path).parent_path(), failed);
  if (!failed) return path;
  return Error{fmt::format("{}: cannot make the folder: {}", path, write_failure(failed.value()))};
}

}  // namespace

Result<PulledModels> PulledModels::open(const HubModel& model) {
  const std::string cache = KTX_TRY(plan_cache::cache_folder());
  KTX_TRY(plan_cache::make_private_folder(cache));
  const std::string owner = folder_in_any_case(cache + "/models", model.owner);
  return PulledModels(folder_in_any_case(owner, model.name));
}

HubModel PulledModels::as_written_first(HubModel model) const {
  const fs::path folder(folder_);
  model.owner = folder.parent_path().filename();
  model.name = folder.filename();
  return model;
}

Result<std::string> PulledModels::place(const HubFile& file) const {
  return with_folders(folder_ + "/" + file.path);
}
Result<std::string> PulledModels::header_place(const std::string& commit,
                                               const HubFile& file) const {
  return with_folders(fmt::format("{}/headers-{}/{}", folder_, commit.substr(0, 12), file.path));
}

bool PulledModels::has(const HubFile& file) const {
  std::error_code missing;
  if (fs::file_size(folder_ + "/" + file.path, missing) != file.bytes || missing) return false;
  for (const ordered_json& entry : read_notes(folder_)) {
    const std::vector<HubFile> known = files_of(entry);
    if (std::ranges::any_of(known, [&](const HubFile& each) { return is_same(each, file); })) {
      return true;
    }
  }
  return false;
}

std::vector<std::string> PulledModels::names_of(const std::vector<HubFile>& files) const {
  std::vector<std::string> names;
  const ordered_json notes = read_notes(folder_);
  for (const auto& [key, entry] : notes.items()) {
    if (files.empty() || !std::ranges::equal(files_of(entry), files, is_same)) continue;
    HubModel model = as_written_first({});
    const size_t colon = key.find(':');
    model.revision = key.substr(0, colon);
    if (colon != key.npos) model.quant = key.substr(colon + 1);
    names.push_back(model.text());
  }
  return names;
}

std::vector<HubFile> PulledModels::noted(const HubModel& model) const {
  const ordered_json notes = read_notes(folder_);
  const auto found = notes.find(key_of(model));
  return found == notes.end() ? std::vector<HubFile>() : files_of(*found);
}

bool PulledModels::are_for_plan(const std::vector<HubFile>& files) const {
  for (const ordered_json& entry : read_notes(folder_)) {
    if (!is_of(entry, files.front().path)) continue;
    if (entry.contains("for_plan") && entry["for_plan"] == true) return true;
  }
  return false;
}

Status PulledModels::keep(const std::vector<HubFile>& files) const {
  if (!are_for_plan(files)) return {};
  ordered_json notes = read_notes(folder_);
  set_for_plan(notes, files.front().path, false);
  return write_notes(folder_, notes);
}

Status PulledModels::remember(const HubModel& model, const std::string& commit,
                              const std::vector<HubFile>& files, bool for_plan) const {
  ordered_json notes = read_notes(folder_);
  ordered_json list = ordered_json::array();
  for (const HubFile& file : files) {
    list.push_back({{"path", file.path}, {"bytes", file.bytes}, {"sha256", file.sha256}});
    // Under another name the path was another file until now.
    for (auto& [key, entry] : notes.items()) {
      for (const HubFile& known : files_of(entry)) {
        if (known.path == file.path && known.sha256 != file.sha256) entry = nullptr;
      }
    }
  }
  notes[key_of(model)] = {{"commit", commit}, {"files", list}};
  set_for_plan(notes, files.front().path, for_plan);
  return write_notes(folder_, notes);
}

}  // namespace ktx::tools
