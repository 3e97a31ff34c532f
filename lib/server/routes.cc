#include "lib/server/endpoints.h"

#include <cstring>

namespace ktx::server {
namespace {

enum class Access { Keyed, Open };
enum class Speed { Slow, Quick };

#define KTX_ROUTE(method, path, function, access, speed) \
  {method, path, function, Access::access == Access::Open, Speed::speed == Speed::Quick},
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
    match.known_path = true;
    if (method != route.method) continue;
    match.route = &route;
    return match;
  }
  return match;
}

}  // namespace ktx::server
