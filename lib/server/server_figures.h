// What the server has answered, by route and status, and what each key has had of it.
//
//   figures.add(entry);          // each answer, when it is out or its client has gone
//   figures.write(text);         // for /metrics
//
// The number of series is bounded: routes are those of the table ("other" for the rest), and behind
// the first 200 keys all are "other". Thread-safe.
#pragma once

#include <cstdint>
#include <map>
#include <mutex>
#include <string>
#include <utility>

#include "lib/runtime/scheduler/scheduler_stats.h"
#include "lib/server/http/http_server.h"

namespace ktx::server {

class PrometheusText;

class ServerFigures {
 public:
  void add(const HttpLogEntry& entry);
  void write(PrometheusText& out) const;

 private:
  struct OfKey {
    int64_t requests = 0, refused = 0, prompt_tokens = 0, cached_tokens = 0, completion_tokens = 0;
  };
  OfKey& of_key(const std::string& key);

  mutable std::mutex mutex_;
  std::map<std::pair<std::string, int>, int64_t> responses_;  // by route and status
  runtime::SecondsHistogram seconds_;
  std::map<std::string, OfKey> keys_;
};

}  // namespace ktx::server
