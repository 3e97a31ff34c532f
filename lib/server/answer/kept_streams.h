// Streams that outlive their connection: an answer goes on when its client has gone, and is read
// again from any byte.
//
//   POST /v1/chat/completions   X-Conversation-Id: c1     -> a stream, kept as c1
//   GET /v1/stream?conv_id=c1&from=0                      -> all of it, and what still comes
//   DELETE /v1/stream?conv_id=c1                          -> ends and forgets it
//
//   HttpReplyPtr kept = streams.keep(owner, "c1", reply, count);   // given to the endpoint
//
// Each owner (API key) has its own. Bounded: the last 4 MiB of a stream, for five minutes after its
// end, 32 streams of an owner. A new stream ends an older one of its name. Thread-safe.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "lib/server/http/api_error.h"
#include "lib/server/http/http_server.h"

namespace ktx::server {

class KeptStream;  // one of them, its bytes and its readers

class KeptStreams {
 public:
  struct State {
    std::string name;
    bool ended = false;
    int64_t bytes = 0;                // that ever were in it
    int64_t begun = 0, ended_at = 0;  // seconds since 1970; 0: not yet
  };

  // The reply to use instead of `reply`: what a stream writes to it is kept. Other answers pass
  // and leave nothing behind. `count` gets the tokens of an answer whose client has gone. The
  // same reply where the owner has too many streams that still run.
  HttpReplyPtr keep(const std::string& owner, const std::string& name, HttpReplyPtr reply,
                    std::function<void(int64_t tokens)> count);

  // Sends what there is from byte `from` on, and then what comes.
  ApiStatus read(const std::string& owner, const std::string& name, int64_t from,
                 const HttpReplyPtr& reply);
  // Ends the answer and forgets it; nothing where there is none.
  void drop(const std::string& owner, const std::string& name);
  // The streams with these names, and those with NAME::anything.
  std::vector<State> find(const std::string& owner, const std::vector<std::string>& names);

 private:
  using Key = std::pair<std::string, std::string>;  // owner, name
  void forget_old(const std::string& owner);

  std::mutex mutex_;
  std::map<Key, std::shared_ptr<KeptStream>> streams_;
};

}  // namespace ktx::server
