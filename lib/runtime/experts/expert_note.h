// What was hot, noted beside the plan: m.ktxplan.experts, an expert profile (plan/expert_profile.h)
// with the decayed counts of a cache. A start counts from there and reads the most used experts
// first, in the background, until no slot is empty. A profile of ktx-run --record-experts does as
// well, under that name.
//
// The note is written once a minute, if there is anything new, and at the end; each time as a whole
// (write_file.h), so that a process that is killed leaves the last one. A folder that may not be
// written to, or a note of another model, costs the warm start alone. Several processes with one
// plan write in turn.
#pragma once

#include <condition_variable>
#include <mutex>
#include <string>
#include <thread>

#include "lib/runtime/experts/expert_cache.h"

namespace ktx::runtime {

class ExpertNote {
 public:
  // Both of the plan; the cache must outlive the note.
  ExpertNote(ExpertCache& cache, const std::string& plan_path);
  ~ExpertNote();
  ExpertNote(const ExpertNote&) = delete;
  ExpertNote& operator=(const ExpertNote&) = delete;

 private:
  void work();
  void write();
  bool stopping(int seconds);  // waits so long

  ExpertCache& cache_;
  const std::string path_;
  int64_t noted_ = 0;  // ExpertCacheUse::chosen() then
  std::mutex mutex_;
  std::condition_variable changed_;
  bool stopping_ = false;
  std::thread thread_;
};

}  // namespace ktx::runtime
