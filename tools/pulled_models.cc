#include "tools/pulled_models.h"

#include <fmt/format.h>
#include <strings.h>

#include <algorithm>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <optional>

#include "lib/plan_cache/cache_folder.h"
#include "lib/plan_cache/entry_lock.h"
#include "lib/support/mapped_file.h"
#include "lib/support/sha256.h"
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
// The key of files that have arrived, until all are there. No revision has a blank.
std::string arrivals_of(const HubModel& model) {
  return "arrived " + key_of(model);
}

ordered_json read_notes(const std::string& folder) {
  const Result<std::string> text = read_text_file(folder + kNotes, 16 << 20);
  ordered_json notes = ordered_json::parse(text ? *text : "{}", nullptr, false);
  return notes.is_object() ? notes : ordered_json::object();
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

ordered_json note_of(const HubFile& file) {
  return {{"path", file.path}, {"bytes", file.bytes}, {"sha256", file.sha256}};
}

// The file is there: what had its place under another name is not.
void set_place(ordered_json& notes, const HubFile& file) {
  for (ordered_json& entry : notes) {
    if (files_of(entry).empty()) continue;
    for (ordered_json& note : entry["files"]) {
      if (note["path"] == file.path) note["replaced"] = note["sha256"] != file.sha256;
    }
  }
}

// Whether another file has had the place of this one since it came; nothing where it never came.
std::optional<bool> is_replaced(const ordered_json& notes, const HubFile& file) {
  std::optional<bool> replaced;
  for (const ordered_json& entry : notes) {
    if (files_of(entry).empty()) continue;
    for (const ordered_json& note : entry["files"]) {
      if (note["path"] != file.path || note["sha256"] != file.sha256) continue;
      const bool here = note.contains("replaced") && note["replaced"] == true;
      replaced = here && replaced.value_or(true);
    }
  }
  return replaced;
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

// One writer at a time, so that no note is lost.
Status PulledModels::change(const std::function<void(ordered_json& notes)>& how) const {
  using Lock = plan_cache::EntryLock;
  KTX_TRY(with_folders(folder_ + kNotes));
  const auto lock = KTX_TRY(Lock::take_existing(folder_, Lock::Kind::Exclusive, Lock::Wait::Yes));
  ordered_json notes = read_notes(folder_);
  how(notes);
  const std::string text = notes.dump(2, ' ', false, ordered_json::error_handler_t::replace);
  return replace_file(folder_ + kNotes, "", text + "\n", 0600);
}

bool PulledModels::has(const HubFile& file) const {
  std::error_code missing;
  if (fs::file_size(folder_ + "/" + file.path, missing) != file.bytes || missing) return false;
  return is_replaced(read_notes(folder_), file) == false;
}

Status PulledModels::check_places(const std::vector<HubFile>& files) const {
  const ordered_json notes = read_notes(folder_);
  for (const HubFile& file : files) {
    if (is_replaced(notes, file) != true) continue;
    return Error{fmt::format(
        "{}/{}: another pull has replaced it by a file of another revision; start again", folder_,
        file.path)};
  }
  return {};
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
  return change([&](ordered_json& notes) { set_for_plan(notes, files.front().path, false); });
}

Status PulledModels::note_arrival(const HubModel& model, const HubFile& file, bool for_plan) const {
  return change([&](ordered_json& notes) {
    set_place(notes, file);
    ordered_json& entry = notes[arrivals_of(model)];
    if (files_of(entry).empty()) entry = {{"files", ordered_json::array()}};
    entry["files"].push_back(note_of(file));
    entry["for_plan"] = for_plan;
  });
}

Status PulledModels::remember(const HubModel& model, const std::string& commit,
                              const std::vector<HubFile>& files, bool for_plan) const {
  return change([&](ordered_json& notes) {
    ordered_json list = ordered_json::array();
    for (const HubFile& file : files) {
      list.push_back(note_of(file));
      // Whatever has come to its place meanwhile.
      list.back()["replaced"] = is_replaced(notes, file) == true;
    }
    notes.erase(arrivals_of(model));
    notes[key_of(model)] = {{"commit", commit}, {"files", list}};
    set_for_plan(notes, files.front().path, for_plan);
  });
}

std::string sha256_of(const std::vector<HubFile>& files) {
  if (files.size() == 1) return files.front().sha256;
  std::string all;
  for (const HubFile& file : files) all += file.sha256;
  const auto digest = sha256(std::as_bytes(std::span(all)));
  return all.empty() || !digest ? "" : to_hex(*digest);
}

}  // namespace ktx::tools
