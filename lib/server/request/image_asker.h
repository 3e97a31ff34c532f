// The asker of images that are looked at: one HTTP request, with all its prompts (several of
// /completion, the instances of /predict).
//
// The tower reads one image at a time, so that it stops between two of them once they are for
// nothing.
#pragma once

#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>

#include "lib/runtime/scheduler/key_shares.h"
#include "lib/server/http/api_error.h"

namespace ktx::server {

struct ImageAsker {
  std::string owner;               // whose request it is (ImageUser::owner)
  runtime::ShareOf share;          // whose turns it takes
  std::atomic<bool> gone = false;  // the client has left
  std::function<bool()> draining;  // whether the server ends; null: it does not
  std::optional<std::chrono::steady_clock::time_point> end;  // when the request's time is over
  // Takes the tokens of a prompt's images from those of the key, before they are looked at; null:
  // the key has no limit.
  std::function<ApiStatus(int64_t tokens)> pay;
  bool counts_only = false;  // tokens are wanted, and no answer: by the headers of the files
  size_t images = 0;         // so far; its prompts are made one after the other
};

}  // namespace ktx::server
