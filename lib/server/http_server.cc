// Listening, starting and stopping; connections are in http_connection.cc. These files,
// http_core.h and http_reply are the ones that know Boost.
#include "lib/server/http_server.h"

#include <fmt/format.h>
#include <sys/resource.h>

#include <algorithm>
#include <boost/asio/co_spawn.hpp>
#include <boost/asio/detached.hpp>
#include <boost/asio/post.hpp>
#include <cerrno>
#include <chrono>

#include "lib/server/http_core.h"

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

}  // namespace

asio::awaitable<void> HttpServer::Core::start_tls(tcp::socket socket) {
  TlsStream stream(beast::tcp_stream(std::move(socket)), *tls);
  beast::get_lowest_layer(stream).expires_after(std::chrono::seconds(15));
  const auto [error] = co_await stream.async_handshake(asio::ssl::stream_base::server, kAwait);
  if (!error) co_await serve(stream);
}

asio::awaitable<void> HttpServer::Core::accept() {
  const auto self = shared_from_this();
  while (acceptor.is_open()) {
    auto [error, socket] = co_await acceptor.async_accept(kAwait);
    if (error == asio::error::operation_aborted || draining) break;
    if (error) {
      // Out of descriptors: others will end and give theirs back.
      again.expires_after(std::chrono::milliseconds(50));
      co_await again.async_wait(kAwait);
      continue;
    }
    if (connections >= options.connections) {
      beast::error_code ignored;
      socket.close(ignored);
      continue;
    }
    beast::error_code ignored;
    socket.set_option(tcp::no_delay(true), ignored);
    connections += 1;
    const auto done = [self](std::exception_ptr) { self->connections -= 1; };
    if (tls) {
      asio::co_spawn(io, self->start_tls(std::move(socket)), done);
    } else {
      asio::co_spawn(
          io,
          [](std::shared_ptr<Core> core, tcp::socket plain) -> asio::awaitable<void> {
            PlainStream stream(std::move(plain));
            co_await core->serve(stream);
          }(self, std::move(socket)),
          done);
    }
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
  if (!options.tls_certificate.empty()) {
    core.tls.emplace(asio::ssl::context::tls_server);
    core.tls->set_options(asio::ssl::context::default_workarounds | asio::ssl::context::no_tlsv1 |
                              asio::ssl::context::no_tlsv1_1,
                          error);
    core.tls->use_certificate_chain_file(options.tls_certificate, error);
    if (error) {
      return Error{fmt::format("{}: cannot use the certificate: {}", options.tls_certificate,
                               error.message())};
    }
    core.tls->use_private_key_file(options.tls_key, asio::ssl::context::pem, error);
    if (error) {
      return Error{fmt::format("{}: cannot use the key: {}", options.tls_key, error.message())};
    }
  }
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
  core.workers.emplace(static_cast<size_t>(std::max(1, options.workers)));
  asio::co_spawn(core.io, core.accept(), asio::detached);
  core.thread = std::thread([core = core_] {
    core->io.run();  // until the last coroutine has ended; accept() is one
    core->ended = true;
  });
  return {};
}

uint16_t HttpServer::port() const {
  return core_->bound_port;
}

HttpCounts HttpServer::counts() const {
  return {core_->connections, core_->requests};
}

void HttpServer::drain() {
  core_->draining = true;
  asio::post(core_->io, [core = core_] {
    beast::error_code ignored;
    core->acceptor.close(ignored);
    for (tcp::socket* socket : core->idle) socket->cancel(ignored);
  });
}

void HttpServer::stop() {
  if (!core_->thread.joinable()) return;
  core_->workers->stop();
  core_->workers->join();
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
