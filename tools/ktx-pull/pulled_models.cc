#include "tools/ktx-pull/pulled_models.h"

#include <fmt/format.h>

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
  return PulledModels(fmt::format("{}/models/{}/{}", cache, model.owner, model.name));
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
    for (const HubFile& known : files_of(entry)) {
      if (known.path == file.path && known.sha256 == file.sha256) return true;
    }
  }
  return false;
}

std::optional<std::vector<HubFile>> PulledModels::find(const HubModel& model) const {
  const ordered_json notes = read_notes(folder_);
  const auto found = notes.find(key_of(model));
  if (found == notes.end()) return std::nullopt;
  std::vector<HubFile> files = files_of(*found);
  for (const HubFile& file : files) {
    if (!has(file)) return std::nullopt;
  }
  return files.empty() ? std::nullopt : std::optional(std::move(files));
}

bool PulledModels::is_for_plan(const HubModel& model) const {
  const ordered_json notes = read_notes(folder_);
  const auto found = notes.find(key_of(model));
  return found != notes.end() && found->is_object() && found->contains("for_plan") &&
         (*found)["for_plan"] == true;
}

Status PulledModels::keep(const HubModel& model) const {
  if (!is_for_plan(model)) return {};
  ordered_json notes = read_notes(folder_);
  notes[key_of(model)]["for_plan"] = false;
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
  notes[key_of(model)] = {{"commit", commit}, {"files", list}, {"for_plan", for_plan}};
  return write_notes(folder_, notes);
}

}  // namespace ktx::tools
