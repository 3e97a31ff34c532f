// Models that clients have this server fetch from a hub, where it may (serve --allow-pull).
//
//   auto leave = fetches.follow(model, owner, {on_progress, on_end});   // ApiResult
//   (*leave)();                                                        // the client has gone
//
// A model is fetched once at a time: others that ask for it meanwhile follow. A fetch ends when all
// of its followers have left. The server connects to nothing by itself: `fetch` starts a program.
// Thread-safe; followers are called on the thread of their fetch, one call at a time.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <string>

#include "lib/server/http/api_error.h"
#include "lib/server/http/call_threads.h"

namespace ktx::server {

struct FetchProgress {
  std::string status;       // "pulling 1f2a...", "compiling"
  std::string digest = "";  // "sha256:1f2a..."; "" for none
  uint64_t total = 0;       // bytes; 0: not known
  uint64_t completed = 0;
};

struct FetchFollower {
  std::function<void(const FetchProgress&)> progress;
  std::function<void(const ApiStatus&)> ended;  // the last call
};

struct FetchOptions {
  // The name under which a model is offered when it is there, by the name that a client has typed.
  std::function<ApiResult<std::string>(const std::string& typed)> name;
  // Fetches a model of that name. Ends soon, with any error, once `stop` is set.
  std::function<ApiStatus(const std::string& name, const std::function<void(const FetchProgress&)>&,
                          const std::atomic<bool>& stop)>
      fetch;
  size_t most = 4;         // at the same time
  size_t most_of_key = 2;  // that requests of one key began
};

class ModelFetches {
 public:
  explicit ModelFetches(FetchOptions options) : options_(std::move(options)) {}
  ~ModelFetches() { stop(); }

  ApiResult<std::string> name(const std::string& typed) const { return options_.name(typed); }
  // `owner`: the key of the request. Returns what says that the follower has left; it may be called
  // at any time.
  ApiResult<std::function<void()>> follow(const std::string& name, const std::string& owner,
                                          FetchFollower follower);
  // None begins any more, and those that run end soon.
  void close();
  // The same, and returns when they have ended.
  void stop();

 private:
  struct Running {
    std::string name, owner;
    std::map<uint64_t, std::shared_ptr<const FetchFollower>> followers;
    std::atomic<bool> stop = false;
  };
  void run(const std::string& key, const std::shared_ptr<Running>& running);

  const FetchOptions options_;
  std::mutex mutex_;
  bool closed_ = false;
  uint64_t next_ = 0;
  std::map<std::string, std::shared_ptr<Running>> running_;  // by name in lower case
  CallThreads threads_;                                      // last: they use the rest
};

}  // namespace ktx::server
