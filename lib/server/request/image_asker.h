// The asker of images that are looked at: one HTTP request, with all its prompts (several of
// /completion, the instances of /predict).
//
// The tower reads one image at a time, so that it stops between two of them once they are for
// nothing.
#pragma once

#include <atomic>
#include <chrono>
#include <cstddef>
#include <functional>
#include <optional>
#include <string>

namespace ktx::server {

struct ImageAsker {
  std::string owner;               // whose request it is (Viewer::look)
  std::atomic<bool> gone = false;  // the client has left
  std::function<bool()> draining;  // whether the server ends; null: it does not
  std::optional<std::chrono::steady_clock::time_point> end;  // when the request's time is over
  size_t images = 0;  // so far; its prompts are made one after the other
};

}  // namespace ktx::server
