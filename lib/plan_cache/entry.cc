#include "lib/plan_cache/entry.h"

#include <dirent.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <nlohmann/json.hpp>
#include <utility>

#include "lib/support/hash.h"
#include "lib/support/mapped_file.h"
#include "lib/support/moved_file.h"
#include "lib/support/write_failure.h"
#include "lib/support/write_file.h"

namespace ktx::plan_cache {
namespace {

using nlohmann::ordered_json;

constexpr const char* kEntryName = "entry.json";
constexpr const char* kEntryWork = "entry.json.work";
constexpr const char* kSuffix = ".ktxplan";
constexpr const char* kRebuilt = ".gguf.work";  // the folder of a plan's GGUF (plan_input.h)

struct File {
  std::string name;
  uint64_t bytes = 0;  // on the disk
  int64_t written = 0;
};

// Regular files of a folder, and of the folder of a GGUF in it ("m.ktxplan.gguf.work/model.gguf"):
// no link is followed. `folders`: of such folders in it, also of an empty one.
std::vector<File> files_in(const std::string& folder, const std::string& below = "",
                           std::vector<std::string>* folders = nullptr) {
  std::vector<File> files;
  DIR* const open = opendir((folder + "/" + below).c_str());
  if (open == nullptr) return files;
  while (const dirent* const entry = readdir(open)) {
    struct stat info = {};
    const std::string name = below + entry->d_name;
    if (lstat((folder + "/" + name).c_str(), &info) != 0) continue;
    if (S_ISDIR(info.st_mode) && below.empty() && name.ends_with(kRebuilt)) {
      for (File& file : files_in(folder, name + "/")) files.push_back(std::move(file));
      if (folders != nullptr) folders->push_back(name);
    } else if (S_ISREG(info.st_mode)) {
      files.push_back({name, static_cast<uint64_t>(info.st_blocks) * 512, info.st_mtim.tv_sec});
    }
  }
  closedir(open);
  return files;
}

// In the folder of a GGUF, that one's name counts.
bool is_plan_part(const std::string& name) {
  return name.substr(0, name.find('/')).find(kSuffix) != name.npos;
}

bool is_own(const std::string& name) {
  return is_plan_part(name) || name == kLockName || name == kEntryName || name == kEntryWork;
}

// A text that may stand in a path as one name.
bool is_file_name(const std::string& name) {
  return !name.empty() && name.front() != '.' && name.find('/') == name.npos &&
         name.find('\0') == name.npos;
}

std::string text_of(const ordered_json& json, const char* key) {
  const auto found = json.find(key);
  return found != json.end() && found->is_string() ? found->get<std::string>() : "";
}

}  // namespace

bool is_entry_name(const std::string& name) {
  return name.size() == 32 && name.find_first_not_of("0123456789abcdef") == name.npos;
}

std::string entry_name(const std::string& content, const std::string& compiler,
                       const std::string& recipe) {
  const std::string text = fmt::format("{}\n{}\n{}", content, compiler, recipe);
  return to_hex(hash_bytes(std::as_bytes(std::span(text))));
}

std::string plan_path(const std::string& folder, const CachedPlan& plan) {
  return folder + "/" + plan.name + kSuffix;
}

std::optional<CachedPlan> read_entry(const std::string& folder, const std::string& id) {
  CachedPlan plan;
  plan.id = id;
  const Result<std::string> text = read_text_file(folder + "/" + kEntryName, 1 << 20);
  const ordered_json json = ordered_json::parse(text ? *text : "", nullptr, false);
  if (json.is_object() && is_file_name(text_of(json, "name"))) {
    plan.name = text_of(json, "name");
    plan.source = text_of(json, "source");
    plan.compiler = text_of(json, "compiler");
    plan.recipe = text_of(json, "recipe");
    plan.note = text_of(json, "note");
    plan.content = text_of(json, "content");
    plan.hub = text_of(json, "hub");
    plan.sha256 = text_of(json, "sha256");
    plan.whole = json.contains("whole") && json["whole"] == true;
    for (const auto& key : json.value("seen", ordered_json::array())) {
      if (key.is_string()) plan.seen.push_back(key.get<std::string>());
    }
  }
  const bool known = !plan.name.empty();
  bool ours = false;
  for (const File& file : files_in(folder)) {
    if (!is_own(file.name)) continue;
    ours = true;
    plan.bytes += file.bytes;
    if (file.name == kLockName) plan.last_use = file.written;
    if (!known && is_plan_part(file.name)) plan.name = file.name.substr(0, file.name.find(kSuffix));
    if (known && file.name == plan.name + kSuffix) plan.complete = true;
    if (known && file.name == plan.name + kSuffix + kMovingSuffix) plan.moving = true;
  }
  if (!ours) return std::nullopt;
  // Seen here and not noted: a compiler may outlive its ktx-run.
  struct stat info = {};
  plan.moved = plan.complete && !plan.hub.empty() && stat(plan.source.c_str(), &info) != 0 &&
               errno == ENOENT;
  if (plan.name.empty()) plan.name = "unknown";
  return plan;
}

Status write_entry(const std::string& folder, const CachedPlan& plan) {
  const ordered_json json = {{"name", plan.name},       {"source", plan.source},
                             {"content", plan.content}, {"compiler", plan.compiler},
                             {"recipe", plan.recipe},   {"note", plan.note},
                             {"hub", plan.hub},         {"sha256", plan.sha256},
                             {"whole", plan.whole},     {"seen", plan.seen}};
  const std::string text = json.dump(2, ' ', false, ordered_json::error_handler_t::replace);
  return replace_file(folder + "/" + kEntryName, "", text + "\n", 0600);
}

Status remove_entry(const std::string& folder) {
  std::vector<std::string> names, folders;
  for (const File& file : files_in(folder, "", &folders)) {
    if (is_plan_part(file.name)) names.push_back(file.name);
  }
  // A complete plan before its work file: what is left has no plan then.
  std::ranges::sort(names);
  for (const char* name : {kEntryName, kEntryWork, kLockName}) names.emplace_back(name);
  for (const std::string& name : names) {
    if (unlink((folder + "/" + name).c_str()) == 0 || errno == ENOENT) continue;
    return Error{fmt::format("{}/{}: cannot remove: {}", folder, name, write_failure(errno))};
  }
  // Files of others stay, and their folders.
  for (const std::string& name : folders) {
    if (is_plan_part(name)) (void)rmdir((folder + "/" + name).c_str());
  }
  (void)rmdir(folder.c_str());
  return {};
}

}  // namespace ktx::plan_cache
