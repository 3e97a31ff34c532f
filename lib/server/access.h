// Access control of the server: API keys, and the web pages and hosts that may send requests.
//
// Every web page that its user opens can reach a loopback server. So a request must name one of
// the server's own hosts (against DNS rebinding), and when a browser names the page that it
// comes from, that page must be the server's or allowed.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "lib/runtime/scheduler/key_shares.h"
#include "lib/server/api_keys.h"
#include "lib/server/http/api_error.h"
#include "lib/server/http/http_server.h"

namespace ktx::server {

struct AccessOptions {
  std::vector<ApiKey> keys;  // none: no key required
  // Origins of pages that may call (CORS); "*": all, "localhost": those of this machine.
  std::vector<std::string> origins;
  std::vector<std::string> hosts;  // names of this server besides its address
  bool loopback = true;            // it listens on a loopback address only
};

// The reason for a refusal; nothing if the request may proceed. `open`: needs no key.
ApiStatus check_access(const AccessOptions& options, const HttpRequest& request, bool open);

// The key that the request has; null: none, or a wrong one.
const ApiKey* key_of(const AccessOptions& options, const HttpRequest& request);
// Its name in the log: the one in its file, or its place among the keys.
std::string name_of(const AccessOptions& options, const ApiKey& key);

// Stands for the key that the request has, wherever what it leaves behind is kept: 32 hexadecimal
// digits that do not tell the key. "" if the server has no keys: texts are shared then.
std::string owner_of(const ApiKey* key);

// The part of the batch that the request takes: that of its key, or, without one (null), of its
// client's address (of IPv6 the first 64 bits), whose requests share it. `number`: of the request.
runtime::ShareOf share_of(const ApiKey* key, const HttpRequest& request, uint64_t number);

// The headers that allow a page to read the answer; none for those that may not.
HttpHeaders cors_headers(const AccessOptions& options, const HttpRequest& request);

// Takes the same time for all `given` of the same length.
bool equal_in_constant_time(std::string_view expected, std::string_view given);

}  // namespace ktx::server
