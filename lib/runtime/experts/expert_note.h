// What was hot, noted beside the plan: m.ktxplan.experts, an expert profile (plan/expert_profile.h)
// with the decayed counts of a cache (expert_cache.h) or, as these are of all experts, of guests
// (expert_guests.h). A start counts from there and reads the most used experts
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
#include "lib/runtime/experts/expert_guests.h"

namespace ktx::runtime {

class ExpertNote {
 public:
  // Cache and guests of one plan, at least one of the two; they must outlive the note.
  ExpertNote(ExpertCache* cache, ExpertGuests* guests, const std::string& plan_path);
  ~ExpertNote();
  ExpertNote(const ExpertNote&) = delete;
  ExpertNote& operator=(const ExpertNote&) = delete;

 private:
  void work();
  void write();
  bool stopping(int seconds);  // waits so long

  int64_t uses() const;

  ExpertCache* const cache_;    // null: none
  ExpertGuests* const guests_;  // null: none
  const std::string path_;
  int64_t noted_ = 0;  // uses() then
  std::mutex mutex_;
  std::condition_variable changed_;
  bool stopping_ = false;
  std::thread thread_;
};

}  // namespace ktx::runtime
