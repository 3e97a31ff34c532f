#include "lib/server/models/model_fetches.h"

#include <fmt/format.h>

#include <algorithm>
#include <system_error>
#include <vector>

#include "lib/support/lower_case.h"

namespace ktx::server {
namespace {

ApiError fetches_end() {
  return {503, "the server is shutting down; what has arrived is kept", "", "", 5};
}

}  // namespace

ApiResult<std::function<void()>> ModelFetches::follow(const std::string& name,
                                                      const std::string& owner,
                                                      FetchFollower follower) {
  // Hubs have one model under a name in any case.
  const std::string key = in_lower_case(name);
  const std::lock_guard lock(mutex_);
  if (closed_) return fetches_end();
  std::shared_ptr<Running> running;
  if (const auto found = running_.find(key); found != running_.end()) {
    running = found->second;
    if (running->stop) {
      return ApiError{503, fmt::format("the fetch of '{}' is being stopped; try again", name),
                      "model", "", 2};
    }
  }
  const bool begins = !running;
  if (begins) {
    const auto of_key = std::ranges::count_if(
        running_, [&](const auto& one) { return one.second->owner == owner; });
    if (running_.size() >= options_.most || static_cast<size_t>(of_key) >= options_.most_of_key) {
      return ApiError{429,
                      fmt::format("{} models are being fetched, {} of them for this key; at most "
                                  "{} and {} are at the same time",
                                  running_.size(), of_key, options_.most, options_.most_of_key),
                      "model", "queue_full", 30};
    }
    running = std::make_shared<Running>();
    running->name = name;
    running->owner = owner;
  }
  const uint64_t number = ++next_;
  running->followers[number] = std::make_shared<const FetchFollower>(std::move(follower));
  if (begins) {
    running_[key] = running;
    try {
      threads_.run([this, key, running] { run(key, running); });
    } catch (const std::system_error&) {
      running_.erase(key);
      return ApiError{503, "the system has no thread for another fetch; try again", "", "", 5};
    }
  }
  return std::function<void()>([this, running, number] {
    std::shared_ptr<const FetchFollower> gone;  // ends without the lock
    const std::lock_guard held(mutex_);
    const auto found = running->followers.find(number);
    if (found == running->followers.end()) return;
    gone = std::move(found->second);
    running->followers.erase(found);
    if (running->followers.empty()) running->stop = true;
  });
}

void ModelFetches::run(const std::string& key, const std::shared_ptr<Running>& running) {
  const auto followers = [&] {
    std::vector<std::shared_ptr<const FetchFollower>> all;
    for (const auto& [number, follower] : running->followers) all.push_back(follower);
    return all;
  };
  const auto tell = [&](const FetchProgress& progress) {
    std::unique_lock lock(mutex_);
    const auto all = followers();
    lock.unlock();
    for (const auto& follower : all) follower->progress(progress);
  };
  ApiStatus ended = options_.fetch(running->name, tell, running->stop);
  std::unique_lock lock(mutex_);
  if (closed_ && !ended) ended = fetches_end();
  const auto all = followers();
  running->followers.clear();
  running_.erase(key);
  lock.unlock();
  for (const auto& follower : all) follower->ended(ended);
}

void ModelFetches::close() {
  const std::lock_guard lock(mutex_);
  closed_ = true;
  for (const auto& [key, running] : running_) running->stop = true;
}

void ModelFetches::stop() {
  close();
  threads_.join();
}

}  // namespace ktx::server
