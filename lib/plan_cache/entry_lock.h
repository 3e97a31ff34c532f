// The lock of a folder of the cache: of a plan's it is shared by those that run the plan, and
// exclusive while it is compiled or removed; of a model's, exclusive while its notes are written.
//
// The lock is a file in the folder and goes with its last holder, whatever ends that one;
// a compiler that was started with `fd()` open holds it too, so that no second
// compiler starts beside one whose ktx-run was killed.
#pragma once

#include <optional>
#include <string>

#include "lib/support/result.h"

namespace ktx::plan_cache {

class EntryLock {
 public:
  enum class Kind { Shared, Exclusive };
  enum class Wait { No, Yes };

  // Makes the folder where it is missing. Nothing where others hold the lock and `wait` is No.
  static Result<std::optional<EntryLock>> take(const std::string& folder, Kind kind, Wait wait);
  // The same for a folder that is there; nothing where it is not.
  static Result<std::optional<EntryLock>> take_existing(const std::string& folder, Kind kind,
                                                        Wait wait = Wait::No);

  EntryLock(EntryLock&& other) noexcept;
  EntryLock& operator=(EntryLock&& other) noexcept;
  ~EntryLock();

  // From exclusive. Another may come between: look again at what is in the folder.
  Status share();
  // Now is the time of the last use.
  void touch();
  int fd() const { return fd_; }

 private:
  explicit EntryLock(int fd) : fd_(fd) {}
  static Result<std::optional<EntryLock>> open(const std::string& folder, Kind kind, Wait wait,
                                               bool make);
  int fd_ = -1;
};

inline constexpr const char* kLockName = "lock";

}  // namespace ktx::plan_cache
