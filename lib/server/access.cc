#include "lib/server/access.h"

#include <arpa/inet.h>
#include <fmt/format.h>
#include <openssl/evp.h>
#include <openssl/hmac.h>

#include <algorithm>

#include "lib/server/http/http_head.h"
#include "lib/support/strings.h"

namespace ktx::server {
namespace {

// "localhost:8080" -> "localhost", "[::1]:80" -> "[::1]".
std::string_view without_port(std::string_view host) {
  const size_t colon = host.rfind(':');
  const size_t bracket = host.rfind(']');
  if (colon == std::string_view::npos) return host;
  if (bracket != std::string_view::npos && colon < bracket) return host;
  return host.substr(0, colon);
}

char lower(char c) {
  return c >= 'A' && c <= 'Z' ? static_cast<char>(c + 32) : c;
}

bool contains(const std::vector<std::string>& list, std::string_view item) {
  return std::find(list.begin(), list.end(), item) != list.end();
}

// Hosts and schemes have the same name in any case.
bool same_name(std::string_view a, std::string_view b) {
  return std::equal(a.begin(), a.end(), b.begin(), b.end(),
                    [&](char x, char y) { return lower(x) == lower(y); });
}

bool own_host(const AccessOptions& options, std::string_view host) {
  if (!options.loopback || host.empty()) return true;
  const auto is = [name = without_port(host)](std::string_view own) {
    return same_name(name, own);
  };
  return is("localhost") || is("127.0.0.1") || is("[::1]") ||
         std::any_of(options.hosts.begin(), options.hosts.end(), is);
}

// "localhost" among the allowed pages: those of this machine, on any port.
bool is_local_page(std::string_view origin) {
  for (const std::string_view scheme : {"http://", "https://"}) {
    if (!origin.starts_with(scheme)) continue;
    const std::string_view host = without_port(origin.substr(scheme.size()));
    return same_name(host, "localhost") || host == "127.0.0.1" || host == "[::1]";
  }
  return false;
}

bool lists_origin(const AccessOptions& options, std::string_view origin) {
  return contains(options.origins, "*") || contains(options.origins, origin) ||
         (contains(options.origins, "localhost") && is_local_page(origin));
}

bool allowed_origin(const AccessOptions& options, const HttpRequest& request) {
  const std::string_view origin = request.header("origin");
  if (origin.empty() || lists_origin(options, origin)) return true;
  // Our own page: "http://" and what the request calls us.
  const size_t scheme = origin.find("://");
  return scheme != std::string_view::npos && origin.substr(scheme + 3) == request.header("host");
}

// "Authorization: Bearer KEY", the scheme in any case as all schemes, or "X-Api-Key: KEY".
std::string_view given_key(const HttpRequest& request) {
  const std::string_view given = request.header("authorization");
  const size_t space = given.find(' ');
  if (space == std::string_view::npos || !same_name(given.substr(0, space), "bearer")) {
    return request.header("x-api-key");
  }
  return trim(given.substr(space));
}

}  // namespace

// Looks at all keys, so that the time does not tell which one it was.
const ApiKey* key_of(const AccessOptions& options, const HttpRequest& request) {
  const std::string_view given = given_key(request);
  const ApiKey* found = nullptr;
  for (const ApiKey& key : options.keys) {
    if (equal_in_constant_time(key.key, given)) found = &key;
  }
  return found;
}

std::string name_of(const AccessOptions& options, const ApiKey& key) {
  return key.name.empty() ? fmt::format("key {}", &key - options.keys.data() + 1) : key.name;
}

bool equal_in_constant_time(std::string_view expected, std::string_view given) {
  // Volatile, so that no compiler ends the loop early.
  volatile size_t different = expected.size() ^ given.size();
  for (size_t i = 0; i < given.size(); ++i) {
    const char other = expected.empty() ? '\0' : expected[i % expected.size()];
    different = different | static_cast<size_t>(static_cast<unsigned char>(given[i] ^ other));
  }
  return different == 0 && !expected.empty();
}

ApiStatus check_access(const AccessOptions& options, const HttpRequest& request, bool open) {
  if (!own_host(options, request.header("host"))) {
    return ApiError{403,
                    fmt::format("this server is not called '{}'; --allow-host adds names",
                                request.header("host").substr(0, 100)),
                    "", "wrong_host"};
  }
  if (!allowed_origin(options, request)) {
    return ApiError{403, "pages of other sites may not call this server; --cors allows them", "",
                    "wrong_origin"};
  }
  if (!open && !options.keys.empty() && key_of(options, request) == nullptr) {
    return ApiError{401, "the API key is missing or wrong", "", "invalid_api_key"};
  }
  return {};
}

std::string owner_of(const ApiKey* key) {
  if (key == nullptr) return "";
  constexpr std::string_view kPurpose = "ktx: owner of slots";
  unsigned char hash[EVP_MAX_MD_SIZE];
  unsigned size = 0;
  HMAC(EVP_sha256(), key->key.data(), static_cast<int>(key->key.size()),
       reinterpret_cast<const unsigned char*>(kPurpose.data()), kPurpose.size(), hash, &size);
  std::string owner;
  for (unsigned i = 0; i < 16; ++i) owner += fmt::format("{:02x}", hash[i]);
  return owner;
}

namespace {

// "2001:db8:1:2:3::4" -> "2001:db8:1:2": a host has as many addresses behind that as it likes.
std::string network_of(const std::string& client) {
  in6_addr bytes = {};
  if (inet_pton(AF_INET6, client.c_str(), &bytes) != 1) return client;
  if (IN6_IS_ADDR_V4MAPPED(&bytes)) return client;
  std::string text;
  for (int i = 0; i < 8; ++i) text += fmt::format("{:02x}", bytes.s6_addr[i]);
  return text;
}

}  // namespace

runtime::ShareOf share_of(const ApiKey* key, const HttpRequest& request, uint64_t number) {
  if (key != nullptr) {
    return {.key = "key " + owner_of(key), .weight = static_cast<double>(key->priority)};
  }
  return {.key = "client " + network_of(request.client), .request = number};
}

namespace {

// Headers of requests that pages of allowed origins may send: what the clients of the protocols
// send. A name with * at its end allows all that begin so; an answer lists those of a request.
constexpr std::string_view kAllowedHeaders[] = {"authorization",
                                                "content-type",
                                                "x-api-key",
                                                "api-key",
                                                "x-conversation-id",
                                                "x-request-id",
                                                "accept",
                                                "cache-control",
                                                "last-event-id",
                                                "idempotency-key",
                                                "user-agent",
                                                "x-app",
                                                "anthropic-version",
                                                "anthropic-beta",
                                                "anthropic-dangerous-direct-browser-access",
                                                "x-stainless-lang",
                                                "x-stainless-package-version",
                                                "x-stainless-os",
                                                "x-stainless-arch",
                                                "x-stainless-runtime",
                                                "x-stainless-runtime-version",
                                                "x-stainless-retry-count",
                                                "x-stainless-timeout",
                                                "x-stainless-helper",
                                                "x-stainless-helper-method",
                                                "x-stainless-custom-poll-interval",
                                                "range",
                                                "session_id",
                                                "conversation_id",
                                                "openai-organization",
                                                "openai-project",
                                                "openai-beta",
                                                "http-referer",
                                                "x-title",
                                                "traceparent",
                                                "tracestate",
                                                "baggage",
                                                "x-stainless-*",
                                                "anthropic-*",
                                                "openai-*",
                                                "x-claude-*",
                                                "x-codex-*"};

// Headers of answers that a page may read.
constexpr std::string_view kExposedHeaders =
    "X-Request-Id, Request-Id, Retry-After, X-Ktx-Note, WWW-Authenticate";

std::string allowed_headers(std::string_view asked) {
  std::vector<std::string> names;
  for (const std::string_view name : kAllowedHeaders) {
    if (!name.ends_with('*')) names.emplace_back(name);
  }
  for (const std::string_view part : split(asked, ',')) {
    std::string name(trim(part));
    std::transform(name.begin(), name.end(), name.begin(), lower);
    const bool allowed = std::any_of(
        std::begin(kAllowedHeaders), std::end(kAllowedHeaders), [&](std::string_view each) {
          return each.ends_with('*') && name.starts_with(each.substr(0, each.size() - 1));
        });
    if (allowed && is_token(name) && !contains(names, name)) names.push_back(name);
  }
  return join(names, ", ");
}

}  // namespace

HttpHeaders cors_headers(const AccessOptions& options, const HttpRequest& request) {
  const std::string origin(request.header("origin"));
  if (origin.empty() || !lists_origin(options, origin)) return {};
  // The client chose it: nothing in it may end the header.
  if (origin.find_first_of("\r\n") != std::string::npos) return {};
  HttpHeaders headers = {{"Access-Control-Allow-Origin", origin},
                         {"Access-Control-Expose-Headers", std::string(kExposedHeaders)},
                         {"Vary", "Origin"}};
  if (request.method == "OPTIONS") {
    headers.emplace_back("Access-Control-Allow-Methods", "GET, POST, DELETE, OPTIONS");
    headers.emplace_back("Access-Control-Allow-Headers",
                         allowed_headers(request.header("access-control-request-headers")));
    headers.emplace_back("Access-Control-Max-Age", "86400");
  }
  return headers;
}

}  // namespace ktx::server
