// Internals of HttpServer: its state and its connections, which are coroutines on one thread.
#pragma once

#include <algorithm>
#include <array>
#include <atomic>
#include <boost/asio/awaitable.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/redirect_error.hpp>
#include <boost/asio/ssl/context.hpp>
#include <boost/asio/steady_timer.hpp>
#include <boost/asio/thread_pool.hpp>
#include <boost/asio/use_awaitable.hpp>
#include <boost/beast/core/tcp_stream.hpp>
#include <boost/beast/ssl/ssl_stream.hpp>
#include <functional>
#include <optional>
#include <set>
#include <string>
#include <thread>

#include "lib/server/http/arrivals.h"
#include "lib/server/http/call_threads.h"
#include "lib/server/http/http_body.h"
#include "lib/server/http/http_head.h"
#include "lib/server/http/http_reply.h"
#include "lib/server/http/http_server.h"

namespace ktx::server {

namespace asio = boost::asio;
namespace beast = boost::beast;
using asio::ip::tcp;
using PlainStream = beast::tcp_stream;
using TlsStream = beast::ssl_stream<beast::tcp_stream>;

// co_await with the error as a value. (Boost 1.74 has no as_tuple.)
inline auto await_into(beast::error_code& error) {
  return asio::redirect_error(asio::use_awaitable, error);
}

// Larger ones take long to read.
inline constexpr size_t kLargeBody = size_t{16} << 10;

struct HttpServer::Core : std::enable_shared_from_this<Core> {
  Core(HttpOptions options, Handler handler)
      : options(std::move(options)),
        handler(std::move(handler)),
        acceptor(io),
        again(io),
        arrivals(this->options.bodies_bytes) {}

  asio::awaitable<void> accept();
  asio::awaitable<void> start(tcp::socket socket);
  // http_connection.cc; for plain and encrypted streams.
  template <class Stream>
  asio::awaitable<void> serve(Stream& stream, Arrival& arrival);
  template <class Stream>
  asio::awaitable<bool> one_request(Stream& stream, Arrival& arrival, std::string& buffer,
                                    const std::string& client, bool first);
  template <class Stream>
  asio::awaitable<bool> read_head_of(Stream& stream, Arrival& arrival, std::string& buffer,
                                     bool first, HttpHead& head);
  template <class Stream>
  asio::awaitable<bool> read_body_of(Stream& stream, Arrival& arrival, std::string& buffer,
                                     const HttpRequest& request, bool expects_continue,
                                     BodyReader& body);
  template <class Stream>
  asio::awaitable<bool> answer(Stream& stream, QueuedReply& reply, int64_t& sent);
  template <class Stream>
  asio::awaitable<void> refuse(Stream& stream, const HttpFault& fault,
                               const HttpRequest* request = nullptr);
  template <class Stream>
  asio::awaitable<void> linger(Stream& stream);
  bool guard(HttpReply& reply, const HttpRequest* request, const std::function<bool()>& call);
  template <class Stream>
  void watch(Stream& stream, const std::shared_ptr<QueuedReply>& reply);

  HttpOptions options;
  Handler handler;
  asio::io_context io{1};
  tcp::acceptor acceptor;
  asio::steady_timer again;
  std::optional<asio::ssl::context> tls;
  std::array<std::optional<asio::thread_pool>, kHttpWorks> workers;  // by HttpWork
  asio::thread_pool& workers_of(const HttpRequest& request) {
    HttpWork work = options.work ? options.work(request) : HttpWork::Short;
    if (request.body.size() > kLargeBody) work = std::max(work, HttpWork::Long);
    return *workers[static_cast<size_t>(work)];
  }
  CallThreads apart;
  std::thread thread;
  std::atomic<uint16_t> bound_port{0};
  std::atomic<int64_t> connections{0};
  std::atomic<int64_t> requests{0};
  std::atomic<bool> draining{false};
  std::atomic<bool> ended{false};  // the thread has left the context
  Arrivals arrivals;               // I/O thread
  std::set<tcp::socket*> open;     // I/O thread
};

}  // namespace ktx::server
