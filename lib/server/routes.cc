#include "lib/server/endpoints.h"

#include <fmt/format.h>

#include <cstring>

#include "lib/server/http/api_error.h"
#include "lib/support/strings.h"

namespace ktx::server {
namespace {

enum class Access { Keyed, Open };
enum class Speed { Slow, Quick };
enum class Model { None, Named };

#define KTX_ROUTE(method, path, function, access, speed, model) \
  {method,                                                      \
   path,                                                        \
   function,                                                    \
   Access::access == Access::Open,                              \
   Speed::speed == Speed::Quick,                                \
   Model::model == Model::Named},
constexpr Route kRoutes[] = {
#include "lib/server/routes.def"
};

bool matches(const char* pattern, const std::string& path) {
  const size_t size = std::strlen(pattern);
  if (size == 0 || pattern[size - 1] != '*') return path == pattern;
  return path.size() >= size && path.compare(0, size - 1, pattern, size - 1) == 0;
}

}  // namespace

RouteMatch find_route(const HttpRequest& request) {
  RouteMatch match;
  const std::string method = request.method == "HEAD" ? "GET" : request.method;
  for (const Route& route : kRoutes) {
    if (!matches(route.path, request.path)) continue;
    if (method == route.method) {
      match.route = &route;
      return match;
    }
    if (!match.allow.empty()) match.allow += ", ";
    match.allow += std::strcmp(route.method, "GET") == 0 ? "GET, HEAD" : route.method;
  }
  return match;
}

std::string near_route(const std::string& path) {
  const std::string asked = path.substr(0, path.find_last_not_of('/') + 1);
  std::vector<std::string> known;
  for (const Route& route : kRoutes) known.emplace_back(route.path);
  std::erase_if(known, [](const std::string& name) { return name == "/" || name.back() == '*'; });
  const auto near = [&](const std::string& guess) {
    // /api/pull does not mean /api/ps.
    std::vector<std::string> as_long = known;
    std::erase_if(as_long, [&](const std::string& name) {
      return name.size() > guess.size() + 1 || guess.size() > name.size() + 1;
    });
    return did_you_mean(guess, as_long);
  };
  if (const std::string misspelt = near(asked); !misspelt.empty()) return misspelt;
  const std::string* longest = nullptr;   // that the path ends with: a base URL ends in /v1 twice
  const std::string* shortest = nullptr;  // that ends with the path: a base URL lacks /v1
  for (const std::string& name : known) {
    if (asked.ends_with(name) && (longest == nullptr || name.size() > longest->size())) {
      longest = &name;
    }
    if (asked.size() > 1 && name.ends_with(asked) &&
        (shortest == nullptr || name.size() < shortest->size())) {
      shortest = &name;
    }
  }
  const std::string* found = longest != nullptr ? longest : shortest;
  return found != nullptr ? fmt::format("; did you mean '{}'?", *found) : near("/v1" + asked);
}

void send_json(const HttpReplyPtr& reply, const nlohmann::ordered_json& json) {
  reply->send(200, "application/json", dump(json));
}

}  // namespace ktx::server
