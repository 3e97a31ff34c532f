// ktx-pull: fetches a GGUF from a hub into the cache, and prints its path on stdout. The one
// program of ktx that connects to anything by itself.
#include <fmt/format.h>
#include <sys/statvfs.h>

#include <algorithm>
#include <filesystem>

#include "lib/input/gguf.h"
#include "lib/plan_cache/cache_folder.h"
#include "lib/plan_cache/plan_cache.h"
#include "lib/plan_cache/pulled_files.h"
#include "lib/support/moved_file.h"
#include "lib/support/strings.h"
#include "lib/support/write_file.h"
#include "tools/finish.h"
#include "tools/ktx-pull/hub.h"
#include "tools/ktx-pull/hub_files.h"
#include "tools/ktx-pull/options.h"
#include "tools/ktx-pull/pull_file.h"
#include "tools/progress.h"
#include "tools/pulled_models.h"

namespace ktx::tools {
namespace {

// A header with one of the largest vocabularies has some 20 MiB.
constexpr uint64_t kFirstHeader = 1 << 20, kLastHeader = 64 << 20;

class Puller {
 public:
  Puller(const Options& options, Hub hub, PulledModels models)
      : options_(options),
        hub_(std::move(hub)),
        models_(std::move(models)),
        model_(models_.as_written_first(options.model)) {}

  Status run() {
    if (!options_.update && !options_.list && !options_.header) {
      const std::vector<HubFile> known = models_.noted(model_);
      if (has_all(known)) {
        // Pulled for itself, it stays from now on.
        const bool for_plan = options_.for_plan && models_.are_for_plan(known);
        if (!options_.for_plan) KTX_TRY(models_.keep(known));
        return print_first(known, for_plan ? "move" : "");
      }
      if (KTX_TRY(print_moved(known))) return {};
    }
    const std::string json = KTX_TRY(hub_.get(hub_.listing_url(model_), model_.text()));
    listing_ = KTX_TRY(read_listing(json, model_.text()));
    if (options_.list) {
      fmt::print("{}", list_text(listing_.ggufs));
      return {};
    }
    files_ = KTX_TRY(choose_files(listing_, model_.quant, model_.name, model_.text()));
    if (options_.header) return fetch_headers();
    if (KTX_TRY(print_moved(files_))) {
      return models_.remember(model_, listing_.commit, files_, true);
    }
    say(fmt::format("{} at {}: {} file{}, {}\n{}", model_.text(), listing_.commit.substr(0, 10),
                    files_.size(), files_.size() == 1 ? "" : "s", human_bytes(bytes_of(files_)),
                    list_text(files_, "  ")));
    if (progress_is_json()) {
      fmt::print(stderr, "{{\"digest\": \"{}\", \"total\": {}}}\n", sha256_of(files_),
                 bytes_of(files_));
    }
    const bool for_plan = options_.for_plan && (!has_all(files_) || models_.are_for_plan(files_));
    KTX_TRY(fetch_files(for_plan));
    KTX_TRY(models_.remember(model_, listing_.commit, files_, for_plan));
    KTX_TRY(models_.check_places(files_));
    return print_first(files_, for_plan ? "move" : "");
  }

 private:
  void say(const std::string& text) const {
    if (!options_.quiet) fmt::print(stderr, "{}", text);
  }
  std::string url_of(const HubFile& file) const {
    return hub_.file_url(model_, listing_.commit, file.path);
  }

  Status print_first(const std::vector<HubFile>& files, std::string_view state) const {
    fmt::print("{}\n{}{}", KTX_TRY(models_.place(files.front())), state, state.empty() ? "" : "\n");
    return {};
  }

  bool has_all(const std::vector<HubFile>& files) const {
    return !files.empty() && std::ranges::all_of(files, [&](auto& f) { return models_.has(f); });
  }

  // Whether a plan has replaced the files; that is printed.
  Result<bool> print_moved(const std::vector<HubFile>& files) const {
    if (!options_.or_plan || files.empty()) return false;
    std::error_code none;
    if (std::filesystem::exists(KTX_TRY(models_.place(files.front())), none)) return false;
    const plan_cache::PlanCache cache = KTX_TRY(plan_cache::PlanCache::open());
    if (!cache.find_moved({model_.text(), sha256_of(files)})) return false;
    fmt::print("{}\nmoved\n", model_.text());
    return true;
  }

  Status check_room(const std::string& folder, uint64_t needed) const {
    struct statvfs space = {};
    if (statvfs(folder.c_str(), &space) != 0) return {};
    const uint64_t free = uint64_t{space.f_bavail} * space.f_frsize;
    if (free >= needed) return {};
    return Error{fmt::format(
        "{}: {} are needed and {} are free; `ktx-run plans --keep-below SIZE` makes room, or name "
        "another folder: KTX_CACHE=FOLDER",
        folder, human_bytes(needed), human_bytes(free))};
  }

  // What is left of a file whose plan is gone. With the plan, it is a part of the model.
  Status remove_rest(const std::string& path) const {
    std::error_code none;
    if (!std::filesystem::exists(path + kMovingSuffix, none)) return {};
    const plan_cache::PlanCache cache = KTX_TRY(plan_cache::PlanCache::open());
    const auto plan = cache.find_moving(path);
    if (plan && !cache.in_use(*plan)) {
      return Error{fmt::format(
          "{}{}: the other part of the model is in a plan that is not finished; finish it: "
          "ktx-run chat {}{}{} (by ktx {}), or give it up: ktx-run plans rm {}",
          printable(path), kMovingSuffix, printable(plan->hub), plan->note.empty() ? "" : " ",
          printable(plan->note), printable(plan->compiler), plan->id)};
    }
    if (!plan && KTX_TRY(plan_cache::remove_rest(path))) return {};
    return Error{fmt::format("{}{}: another program moves this file into a plan now; wait for it",
                             printable(path), kMovingSuffix)};
  }

  Status fetch_files(bool for_plan) {
    std::vector<const HubFile*> missing;
    uint64_t needed = 0, arrived = 0, checked = 0;
    for (const HubFile& file : files_) {
      if (models_.has(file)) continue;
      missing.push_back(&file);
      const std::string path = KTX_TRY(models_.place(file));
      KTX_TRY(remove_rest(path));
      std::error_code none;
      if (!std::filesystem::exists(path + ".work", none)) needed += file.bytes;
    }
    if (missing.empty()) return {};
    KTX_TRY(check_room(models_.folder(), needed));
    uint64_t total = 0;
    for (const HubFile* const file : missing) total += file->bytes;
    Progress fetching("fetching", options_.quiet), checking("checking", options_.quiet);
    PullSettings settings;
    settings.connections = static_cast<int>(options_.connections);
    settings.part_bytes = static_cast<uint64_t>(options_.part_bytes);
    settings.arrived = [&](uint64_t bytes) {
      fetching.update(std::min(arrived += bytes, total), total);
    };
    settings.checked = [&](uint64_t bytes) {
      checking.update(std::min(checked += bytes, total), total);
    };
    Status done;
    for (const HubFile* const file : missing) {
      const std::string path = KTX_TRY(models_.place(*file));
      done = pull_file(hub_, url_of(*file), *file, path, settings);
      if (done) done = models_.note_arrival(model_, *file, for_plan);
      if (!done) break;
    }
    fetching.finish();
    checking.finish();
    return done;
  }

  // Longer and longer beginnings, until all of them hold a whole header.
  Status fetch_headers() {
    std::vector<std::string> paths;
    for (const HubFile& file : files_) {
      paths.push_back(KTX_TRY(models_.header_place(listing_.commit, file)));
    }
    for (uint64_t bytes = kFirstHeader;; bytes *= 4) {
      for (size_t i = 0; i < files_.size(); ++i) {
        const ByteRange range{0, std::min(bytes, files_[i].bytes)};
        const std::string head = KTX_TRY(hub_.get(url_of(files_[i]), files_[i].path, range));
        KTX_TRY(replace_file(paths[i], "", head, 0600));
      }
      // What is wrong with it is for its reader to say.
      if (bytes >= kLastHeader ||
          input::GgufFile::open(paths.front(), {.header_only_ok = true}).ok()) {
        fmt::print("{}\n", paths.front());
        return {};
      }
    }
  }

  const Options& options_;
  Hub hub_;
  PulledModels models_;
  const HubModel model_;
  HubListing listing_;
  std::vector<HubFile> files_;
};

Status pull(const Options& options) {
  Hub hub = KTX_TRY(Hub::open());
  if (!options.quiet) {
    hub.tell = [](const std::string& text) { fmt::print(stderr, "ktx-pull: note: {}\n", text); };
  }
  PulledModels models = KTX_TRY(PulledModels::open(options.model));
  return Puller(options, std::move(hub), std::move(models)).run();
}

}  // namespace
}  // namespace ktx::tools

int main(int argc, char** argv) {
  return ktx::tools::run_tool("ktx-pull", [&] {
    int status = 2;
    const auto options = ktx::tools::parse_options(argc, argv, status);
    if (!options) return status;
    if (curl_global_init(CURL_GLOBAL_DEFAULT) != CURLE_OK) {
      ktx::tools::say_error("ktx-pull", "libcurl does not start");
      return 1;
    }
    const ktx::Status done = ktx::tools::pull(*options);
    if (!done) ktx::tools::say_error("ktx-pull", done.error().message);
    curl_global_cleanup();
    return done ? 0 : 1;
  });
}
