// Listens, starts and stops; connections are in http_connection.cc. Only these two files,
// http_core.h, http_gzip and http_reply include Boost.
#include "lib/server/http/http_server.h"

#include <fmt/format.h>
#include <openssl/err.h>
#include <openssl/ssl.h>
#include <sys/resource.h>

#include <algorithm>
#include <boost/asio/co_spawn.hpp>
#include <boost/asio/detached.hpp>
#include <boost/asio/post.hpp>
#include <cerrno>
#include <chrono>
#include <exception>
#include <string>
#include <string_view>

#include "lib/server/http/http_core.h"

namespace ktx::server {
namespace {

// What to do when an address cannot be had.
std::string_view listen_advice(const beast::error_code& error) {
  if (error == asio::error::address_in_use) {
    return "; another program has this port: stop it, or take another (--port N; 0: a free one)";
  }
  if (error == asio::error::access_denied) {
    return "; ports below 1024 are for the system: take another (--port N)";
  }
  if (error.value() == EADDRNOTAVAIL) {
    return "; this machine has no such address: --host 0.0.0.0 listens on all it has";
  }
  return "";
}

// A response to a client beyond the limit, as far as it can be sent without waiting.
void say_full(tcp::socket& socket, bool encrypted) {
  constexpr std::string_view kBody =
      R"({"error":{"message":"too many connections; try again","type":"unavailable_error",)"
      R"("param":null,"code":null}})";
  const std::string text = fmt::format(
      "HTTP/1.1 503 Service Unavailable\r\nConnection: close\r\nRetry-After: 2\r\n"
      "Content-Type: application/json\r\nContent-Length: {}\r\n\r\n{}",
      kBody.size(), kBody);
  beast::error_code ignored;
  socket.non_blocking(true, ignored);
  if (!encrypted) socket.write_some(asio::buffer(text), ignored);
  socket.shutdown(tcp::socket::shutdown_send, ignored);
  socket.close(ignored);
}

// With the certificate and key that the files have now.
Result<asio::ssl::context> make_tls(const HttpOptions& options) {
  asio::ssl::context tls(asio::ssl::context::tls_server);
  beast::error_code error;
  tls.set_options(asio::ssl::context::default_workarounds | asio::ssl::context::no_tlsv1 |
                      asio::ssl::context::no_tlsv1_1,
                  error);
  tls.use_certificate_chain_file(options.tls_certificate, error);
  if (error) {
    return Error{fmt::format("{}: cannot use the certificate: {}", options.tls_certificate,
                             error.message())};
  }
  tls.use_private_key_file(options.tls_key, asio::ssl::context::pem, error);
  if (error) {
    return Error{fmt::format("{}: cannot use the key: {}", options.tls_key, error.message())};
  }
  return tls;
}

}  // namespace

// One connection, from its first byte to its last.
asio::awaitable<void> HttpServer::Core::start(tcp::socket socket) {
  beast::error_code ignored;
  const std::string peer = socket.remote_endpoint(ignored).address().to_string();
  std::optional<PlainStream> plain;
  std::optional<TlsStream> encrypted;
  if (tls) {
    encrypted.emplace(beast::tcp_stream(std::move(socket)), *tls);
  } else {
    plain.emplace(std::move(socket));
  }
  tcp::socket& lowest =
      tls ? beast::get_lowest_layer(*encrypted).socket() : beast::get_lowest_layer(*plain).socket();
  struct Open {
    std::set<tcp::socket*>& all;
    tcp::socket* socket;
    ~Open() { all.erase(socket); }
  } const held{open, &lowest};
  open.insert(&lowest);
  Arrival arrival(arrivals, peer, [&lowest] {
    beast::error_code none;
    lowest.cancel(none);
  });
  if (plain) {
    co_await serve(*plain, arrival);
    co_return;
  }
  beast::get_lowest_layer(*encrypted).expires_after(std::chrono::seconds(15));
  beast::error_code error;
  co_await encrypted->async_handshake(asio::ssl::stream_base::server, await_into(error));
  if (error.category() == asio::error::get_ssl_category() &&
      ERR_GET_REASON(static_cast<unsigned long>(error.value())) == SSL_R_HTTP_REQUEST) {
    // OpenSSL has read the beginning of the request, and sent nothing.
    // A name of its own: g++ 12 destroys a temporary in a co_await twice.
    const HttpFault fault = {400, "this port takes https://, not http://"};
    co_await refuse(beast::get_lowest_layer(*encrypted), fault);
    co_return;
  }
  if (!error && !arrival.dropped()) co_await serve(*encrypted, arrival);
}

asio::awaitable<void> HttpServer::Core::accept() {
  const auto self = shared_from_this();
  while (acceptor.is_open()) {
    beast::error_code error;
    tcp::socket socket = co_await acceptor.async_accept(await_into(error));
    if (error == asio::error::operation_aborted || draining) break;
    if (error) {
      // Out of descriptors: others give theirs back.
      arrivals.make_place();
      again.expires_after(std::chrono::milliseconds(50));
      beast::error_code woken;
      co_await again.async_wait(await_into(woken));
      continue;
    }
    if (connections >= options.connections && !arrivals.make_place()) {
      say_full(socket, tls.has_value());
      continue;
    }
    beast::error_code ignored;
    socket.set_option(tcp::no_delay(true), ignored);
    connections += 1;
    asio::co_spawn(
        io,
        [](std::shared_ptr<Core> core, tcp::socket given) -> asio::awaitable<void> {
          co_await core->start(std::move(given));
        }(self, std::move(socket)),
        [self](std::exception_ptr) { self->connections -= 1; });
  }
}

HttpServer::HttpServer(HttpOptions options, Handler handler)
    : core_(std::make_shared<Core>(std::move(options), std::move(handler))) {}

HttpServer::~HttpServer() {
  stop();
}

Status HttpServer::start() {
  Core& core = *core_;
  // Every connection is a descriptor.
  rlimit files = {};
  if (getrlimit(RLIMIT_NOFILE, &files) == 0 && files.rlim_cur < files.rlim_max) {
    files.rlim_cur = files.rlim_max;
    setrlimit(RLIMIT_NOFILE, &files);
  }
  const HttpOptions& options = core.options;
  const auto failed = [&](const char* what, const beast::error_code& error) {
    return Error{fmt::format("{}:{}: {}: {}{}", options.host, options.port, what, error.message(),
                             listen_advice(error))};
  };
  beast::error_code error;
  if (options.tls_certificate.empty() != options.tls_key.empty()) {
    return Error{"TLS needs a certificate and its key; give both or none"};
  }
  if (!options.tls_certificate.empty()) core.tls.emplace(KTX_TRY(make_tls(options)));
  tcp::resolver resolver(core.io);
  const auto found =
      resolver.resolve(options.host, std::to_string(options.port), tcp::resolver::passive, error);
  if (error) return failed("no such address", error);
  const tcp::endpoint endpoint = found.begin()->endpoint();
  core.acceptor.open(endpoint.protocol(), error);
  if (error) return failed("cannot listen", error);
  core.acceptor.set_option(tcp::acceptor::reuse_address(true), error);
  core.acceptor.bind(endpoint, error);
  if (error) return failed("cannot listen", error);
  core.acceptor.listen(4096, error);
  if (error) return failed("cannot listen", error);
  core.bound_port = core.acceptor.local_endpoint(error).port();
  for (auto& workers : core.workers) {
    workers.emplace(static_cast<size_t>(std::max(1, options.workers)));
  }
  asio::co_spawn(core.io, core.accept(), asio::detached);
  core.thread = std::thread([core = core_] {
    // Until the last coroutine has ended; accept() is one. What a posted call throws, at most
    // for want of memory, is not the end of the others.
    for (bool all = false; !all;) {
      try {
        core->io.run();
        all = true;
      } catch (...) {
      }
    }
    core->ended = true;
  });
  return {};
}

uint16_t HttpServer::port() const {
  return core_->bound_port;
}

Status HttpServer::reload_certificate() {
  const auto fresh = std::make_shared<asio::ssl::context>(KTX_TRY(make_tls(core_->options)));
  // Connections hold the context that they began with.
  asio::post(core_->io, [core = core_, fresh] { core->tls.emplace(std::move(*fresh)); });
  return {};
}

HttpCounts HttpServer::counts() const {
  return {core_->connections, core_->requests};
}

void HttpServer::run_later(const HttpRequest& request, const HttpReplyPtr& reply,
                           std::function<void()> call) {
  if (!core_->workers[0]) return;
  asio::post(core_->workers_of(request), [core = core_, reply, call = std::move(call)] {
    core->guard(*reply, nullptr, [&] { return call(), true; });
  });
}

void HttpServer::run_apart(const HttpReplyPtr& reply, std::function<void()> call) {
  core_->apart.run([core = core_, reply, call = std::move(call)] {
    core->guard(*reply, nullptr, [&] { return call(), true; });
  });
}

void HttpServer::drain() {
  core_->draining = true;
  asio::post(core_->io, [core = core_] {
    beast::error_code ignored;
    core->acceptor.close(ignored);
    core->arrivals.drop_idle();
  });
}

void HttpServer::stop() {
  const bool started = core_->thread.joinable();
  for (auto& workers : core_->workers) {
    if (!started) break;
    workers->stop();
    workers->join();
  }
  core_->apart.join();
  if (!started) return;
  // Every coroutine ends by itself: those that the context still holds at its end would
  // keep the core, and so the context, for ever.
  asio::post(core_->io, [core = core_] {
    beast::error_code ignored;
    core->acceptor.close(ignored);
    for (tcp::socket* socket : core->open) socket->close(ignored);
  });
  for (int i = 0; i < 100 && !core_->ended; ++i) {
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
  }
  core_->io.stop();
  core_->thread.join();
  // The thread may have ended before it saw what was posted last, which holds the core.
  core_->io.restart();
  core_->io.poll();
}

}  // namespace ktx::server
