// The keys of clients, as a file has them: one a line, with what its client may do.
//
//   sk-first                                    # a note
//   sk-second  name=anna requests=60 tokens=20k
//   sk-third   models=edit
//   sk-fourth  figures=all
//   sk-fifth   priority=4
//
// `requests` and `tokens` are limits per minute; tokens are those of prompts and answers.
// `models=edit`: may copy and delete plans, where the server allows that at all. `figures=all`: may
// read /metrics and /stats, which count all keys together, where there are several. `priority=N`:
// where several keys compute at once, it gets N times the part of a key without (1 to 1000).
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "lib/support/result.h"

namespace ktx::server {

struct ApiKey {
  ApiKey(std::string key) : key(std::move(key)) {}  // NOLINT: a key alone is most of them
  ApiKey(const char* key) : key(key) {}             // NOLINT

  std::string key;
  std::string name;                 // in the log; "": its place in the list is
  int64_t requests_per_minute = 0;  // 0: no limit
  int64_t tokens_per_minute = 0;
  int64_t priority = 1;
  bool edits_models = false;
  bool sees_figures = false;
};

// Adds the keys of a file's text. Messages begin with its path and line.
Status read_api_keys(std::string_view path, std::string_view text, std::vector<ApiKey>& keys);

}  // namespace ktx::server
