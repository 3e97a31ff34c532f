// GET /: the page of web_ui/, embedded at build.
#include "lib/server/web_page.h"

#include "lib/server/endpoints.h"

namespace ktx::server {

ApiStatus get_page(const ServerContext&, const HttpRequest& request, const HttpReplyPtr& reply) {
  // Clients of Ollama ask whether it runs.
  if (request.header("accept").find("text/html") == std::string_view::npos) {
    reply->send(200, "text/plain; charset=utf-8", "Ollama is running");
    return {};
  }
  reply->send(200, "text/html; charset=utf-8", std::string(web_page()),
              {{"Content-Security-Policy",
                "default-src 'none'; script-src 'unsafe-inline'; style-src 'unsafe-inline'; "
                "img-src data:; connect-src 'self'; frame-ancestors 'none'; base-uri 'none'"},
               {"X-Content-Type-Options", "nosniff"},
               {"Referrer-Policy", "no-referrer"},
               {"Cache-Control", "no-cache"}});
  return {};
}

}  // namespace ktx::server
