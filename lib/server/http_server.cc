// The one file that knows Boost. A connection is a coroutine:
//
//   read a header -> read its body -> hand to a handler -> write what the reply has,
//   until its end -> again
//
// All coroutines run on one thread; replies are filled from any thread and wake theirs.
#include "lib/server/http_server.h"

#include <fmt/format.h>
#include <sys/resource.h>
#include <sys/socket.h>

#include <algorithm>
#include <atomic>
#include <boost/asio/as_tuple.hpp>
#include <boost/asio/awaitable.hpp>
#include <boost/asio/co_spawn.hpp>
#include <boost/asio/detached.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/post.hpp>
#include <boost/asio/ssl/context.hpp>
#include <boost/asio/steady_timer.hpp>
#include <boost/asio/thread_pool.hpp>
#include <boost/asio/use_awaitable.hpp>
#include <boost/asio/write.hpp>
#include <boost/beast/core/flat_buffer.hpp>
#include <boost/beast/core/tcp_stream.hpp>
#include <boost/beast/http/parser.hpp>
#include <boost/beast/http/read.hpp>
#include <boost/beast/http/string_body.hpp>
#include <boost/beast/ssl/ssl_stream.hpp>
#include <chrono>
#include <deque>
#include <mutex>
#include <optional>
#include <set>
#include <thread>

namespace ktx::server {
namespace {

namespace asio = boost::asio;
namespace beast = boost::beast;
namespace http = boost::beast::http;
using asio::ip::tcp;
using Clock = std::chrono::steady_clock;
using PlainStream = beast::tcp_stream;
using TlsStream = beast::ssl_stream<beast::tcp_stream>;

// co_await with the error as a value.
constexpr auto kAwait = asio::as_tuple(asio::use_awaitable);

class Reply final : public HttpReply, public std::enable_shared_from_this<Reply> {
 public:
  Reply(asio::io_context& io, uint64_t unsent_bytes, int minor, bool head, bool keep_alive,
        HttpHeaders more)
      : io_(io),
        wake_(io, Clock::time_point::max()),
        unsent_limit_(unsent_bytes),
        chunked_(minor >= 1),
        head_(head),
        keep_alive_(keep_alive),
        more_(std::move(more)) {}

  void send(int status, std::string_view content_type, std::string body,
            const HttpHeaders& headers) override {
    std::string text = head_of(status, content_type, headers);
    if (status != 204) text += fmt::format("Content-Length: {}\r\n", body.size());
    text += "\r\n";
    if (!head_) text += body;
    push(std::move(text), true, status);
  }

  void begin(int status, std::string_view content_type, const HttpHeaders& headers) override {
    if (!chunked_) keep_alive_ = false;
    std::string text = head_of(status, content_type, headers);
    text += chunked_ ? "Transfer-Encoding: chunked\r\n\r\n" : "\r\n";
    push(std::move(text), head_, status);
  }

  void write(std::string piece) override {
    if (piece.empty()) return;
    push(chunked_ ? fmt::format("{:x}\r\n{}\r\n", piece.size(), piece) : std::move(piece), false,
         0);
  }

  void end() override { push(chunked_ ? "0\r\n\r\n" : "", true, 0); }

  void on_gone(std::function<void()> call) override {
    {
      const std::lock_guard lock(mutex_);
      if (done_) return;
      if (!gone_) {
        on_gone_ = std::move(call);
        return;
      }
    }
    call();
  }

  bool begun() const override {
    const std::lock_guard lock(mutex_);
    return status_ != 0;
  }

  // For the connection.
  void set_gone() {
    std::function<void()> call;
    {
      const std::lock_guard lock(mutex_);
      if (done_ || gone_) return;
      gone_ = true;
      call.swap(on_gone_);
    }
    wake();
    if (call) call();
  }
  // What is to be sent; sets `last` with the last of it. Empty: wait.
  std::string take(bool& last, bool& gone) {
    const std::lock_guard lock(mutex_);
    last = done_;
    gone = gone_;
    return std::exchange(unsent_, {});
  }
  asio::steady_timer& wake_timer() { return wake_; }
  bool keep_alive() const { return keep_alive_; }
  int status() const {
    const std::lock_guard lock(mutex_);
    return status_;
  }
  bool gone() const {
    const std::lock_guard lock(mutex_);
    return gone_;
  }

 private:
  std::string head_of(int status, std::string_view content_type, const HttpHeaders& headers) {
    std::string text = fmt::format("HTTP/1.1 {} {}\r\n", status, status_text(status));
    if (!content_type.empty()) text += fmt::format("Content-Type: {}\r\n", content_type);
    for (const HttpHeaders* list : {&more_, &headers}) {
      for (const auto& [name, value] : *list) text += fmt::format("{}: {}\r\n", name, value);
    }
    text += keep_alive_ ? "Connection: keep-alive\r\n" : "Connection: close\r\n";
    return text;
  }

  void push(std::string text, bool last, int status) {
    bool too_much = false;
    std::function<void()> unneeded;  // destroyed without the lock: it may own much
    {
      const std::lock_guard lock(mutex_);
      if (done_ || gone_ || (status != 0 && status_ != 0)) return;
      if (status != 0) status_ = status;
      unsent_ += text;
      done_ = last;
      too_much = !last && unsent_.size() > unsent_limit_;
      if (last) unneeded.swap(on_gone_);
    }
    if (too_much) return set_gone();
    wake();
  }

  void wake() {
    asio::post(io_, [self = shared_from_this()] { self->wake_.cancel(); });
  }

  asio::io_context& io_;
  asio::steady_timer wake_;  // used on the I/O thread only
  const uint64_t unsent_limit_;
  const bool chunked_;
  const bool head_;
  bool keep_alive_;
  const HttpHeaders more_;

  mutable std::mutex mutex_;
  std::string unsent_;
  bool done_ = false;
  bool gone_ = false;
  int status_ = 0;
  std::function<void()> on_gone_;
};

std::string lower(std::string_view text) {
  std::string out(text);
  for (char& c : out) c = c >= 'A' && c <= 'Z' ? static_cast<char>(c + 32) : c;
  return out;
}

// The status that a broken or too large request gets; 0: just close.
int status_of(beast::error_code error) {
  if (error == http::error::body_limit) return 413;
  if (error == http::error::header_limit) return 431;
  if (error == http::error::end_of_stream || error == http::error::partial_message) return 0;
  if (error == beast::error::timeout) return 408;
  if (error == http::error::bad_version) return 505;
  return error.category() == http::make_error_code(http::error::bad_method).category() ? 400 : 0;
}

std::string plain_error(int status) {
  const std::string body = fmt::format(
      R"({{"error":{{"message":"{}","type":"invalid_request_error","param":null,"code":null}}}})",
      status_text(status));
  return fmt::format(
      "HTTP/1.1 {} {}\r\nContent-Type: application/json\r\nConnection: close\r\n"
      "Content-Length: {}\r\n\r\n{}",
      status, status_text(status), body.size(), body);
}

tcp::socket& socket_of(PlainStream& stream) {
  return stream.socket();
}
tcp::socket& socket_of(TlsStream& stream) {
  return stream.next_layer().socket();
}

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

struct HttpServer::Core : std::enable_shared_from_this<Core> {
  Core(HttpOptions options, Handler handler)
      : options(std::move(options)), handler(std::move(handler)), acceptor(io), again(io) {}

  asio::awaitable<void> accept();
  asio::awaitable<void> start_tls(tcp::socket socket);
  template <class Stream>
  asio::awaitable<void> serve(Stream& stream);
  template <class Stream>
  asio::awaitable<bool> one_request(Stream& stream, beast::flat_buffer& buffer,
                                    const std::string& client);
  template <class Stream>
  asio::awaitable<bool> answer(Stream& stream, Reply& reply, int64_t& sent);
  template <class Stream>
  asio::awaitable<void> refuse(Stream& stream, int status);
  template <class Stream>
  void watch(Stream& stream, const std::shared_ptr<Reply>& reply);

  HttpOptions options;
  Handler handler;
  asio::io_context io{1};
  tcp::acceptor acceptor;
  asio::steady_timer again;
  std::optional<asio::ssl::context> tls;
  std::optional<asio::thread_pool> workers;
  std::thread thread;
  std::atomic<uint16_t> bound_port{0};
  std::atomic<int64_t> connections{0};
  std::atomic<int64_t> requests{0};
  std::atomic<bool> draining{false};
  std::atomic<bool> ended{false};  // the thread has left the context
  uint64_t bodies_bytes = 0;       // I/O thread
  std::set<tcp::socket*> open;     // I/O thread
  std::set<tcp::socket*> idle;     // I/O thread: between two requests
};

// Waits until the client closes; a pipelined request ends the watch.
template <class Stream>
void HttpServer::Core::watch(Stream& stream, const std::shared_ptr<Reply>& reply) {
  tcp::socket& socket = socket_of(stream);
  socket.async_wait(tcp::socket::wait_read,
                    [reply, fd = socket.native_handle()](const beast::error_code& error) {
                      if (error) return;
                      char byte = 0;
                      const ssize_t got = ::recv(fd, &byte, 1, MSG_PEEK | MSG_DONTWAIT);
                      if (got == 0 || (got < 0 && errno != EAGAIN && errno != EINTR))
                        reply->set_gone();
                    });
}

// False: the connection is of no more use.
template <class Stream>
asio::awaitable<bool> HttpServer::Core::answer(Stream& stream, Reply& reply, int64_t& sent) {
  auto& lowest = beast::get_lowest_layer(stream);
  for (;;) {
    bool last = false, gone = false;
    const std::string text = reply.take(last, gone);
    if (gone) co_return false;
    if (!text.empty()) {
      lowest.expires_after(std::chrono::seconds(options.write_seconds));
      const auto [error, size] = co_await asio::async_write(stream, asio::buffer(text), kAwait);
      sent += static_cast<int64_t>(size);
      if (error) {
        reply.set_gone();
        co_return false;
      }
      // More may have come meanwhile.
      if (!last) continue;
    }
    if (last) co_return reply.keep_alive();
    lowest.expires_never();
    co_await reply.wake_timer().async_wait(kAwait);
  }
}

template <class Stream>
asio::awaitable<void> HttpServer::Core::refuse(Stream& stream, int status) {
  const std::string text = plain_error(status);
  beast::get_lowest_layer(stream).expires_after(std::chrono::seconds(5));
  co_await asio::async_write(stream, asio::buffer(text), kAwait);
  // What the client still sends is read for a moment: closing at once would reset the
  // connection before the answer is seen.
  tcp::socket& socket = socket_of(stream);
  beast::error_code ignored;
  socket.shutdown(tcp::socket::shutdown_send, ignored);
  std::string sink(64u << 10, '\0');
  const Clock::time_point until = Clock::now() + std::chrono::seconds(2);
  while (Clock::now() < until) {
    const auto [error, size] =
        co_await beast::get_lowest_layer(stream).async_read_some(asio::buffer(sink), kAwait);
    if (error) break;
  }
}

// One request and its answer. False: close.
template <class Stream>
asio::awaitable<bool> HttpServer::Core::one_request(Stream& stream, beast::flat_buffer& buffer,
                                                    const std::string& client) {
  auto& lowest = beast::get_lowest_layer(stream);
  http::request_parser<http::string_body> parser;
  parser.header_limit(static_cast<uint32_t>(options.header_bytes));
  parser.body_limit(options.body_bytes);
  lowest.expires_after(std::chrono::seconds(options.idle_seconds));
  idle.insert(&lowest.socket());
  const auto [header_error, header_size] =
      co_await http::async_read_header(stream, buffer, parser, kAwait);
  idle.erase(&lowest.socket());
  if (header_error) {
    const int status = status_of(header_error);
    // A connection that never said anything is closed without a word.
    if (status != 0 && !(status == 408 && !parser.got_some())) co_await refuse(stream, status);
    co_return false;
  }
  const uint64_t announced = parser.content_length() ? *parser.content_length() : 0;
  const uint64_t reserved =
      parser.chunked() ? options.body_bytes : std::min(announced, options.body_bytes);
  if (announced > options.body_bytes) {
    co_await refuse(stream, 413);
    co_return false;
  }
  if (bodies_bytes + reserved > options.bodies_bytes) {
    co_await refuse(stream, 503);
    co_return false;
  }
  struct Reserved {
    uint64_t& sum;
    uint64_t size;
    ~Reserved() { sum -= size; }
  } const hold{bodies_bytes, reserved};
  bodies_bytes += reserved;

  if (lower(std::string_view(parser.get()[http::field::expect])) == "100-continue") {
    const std::string go_on = "HTTP/1.1 100 Continue\r\n\r\n";
    co_await asio::async_write(stream, asio::buffer(go_on), kAwait);
  }
  lowest.expires_after(std::chrono::seconds(options.body_seconds));
  const auto [body_error, body_size] = co_await http::async_read(stream, buffer, parser, kAwait);
  if (body_error) {
    if (const int status = status_of(body_error); status != 0) co_await refuse(stream, status);
    co_return false;
  }

  const Clock::time_point begin = Clock::now();
  auto message = parser.release();
  auto request = std::make_shared<HttpRequest>();
  request->method = std::string(message.method_string());
  const std::string target(message.target());
  const size_t mark = target.find('?');
  request->path = decode_url(std::string_view(target).substr(0, mark));
  if (mark != std::string::npos) request->query = target.substr(mark + 1);
  for (const auto& field : message) {
    request->headers.emplace_back(lower(std::string_view(field.name_string())),
                                  std::string(field.value()));
  }
  request->body = std::move(message.body());
  request->client = client;
  const auto body_bytes = static_cast<int64_t>(request->body.size());
  requests += 1;

  const auto reply = std::make_shared<Reply>(
      io, options.unsent_bytes, message.version() % 10, request->method == "HEAD",
      message.keep_alive() && !draining,
      options.more_headers ? options.more_headers(*request) : HttpHeaders());
  if (options.quick && options.quick(*request)) {
    handler(*request, reply);
  } else {
    asio::post(*workers,
               [self = shared_from_this(), request, reply] { self->handler(*request, reply); });
  }
  watch(stream, reply);
  int64_t sent = 0;
  const bool again_please = co_await answer(stream, *reply, sent);
  if (options.log) {
    options.log({client, request->method, request->path, reply->status(), body_bytes, sent,
                 std::chrono::duration<double>(Clock::now() - begin).count(), reply->gone()});
  }
  beast::error_code ignored;
  lowest.socket().cancel(ignored);  // the watch
  co_return again_please && !draining;
}

template <class Stream>
asio::awaitable<void> HttpServer::Core::serve(Stream& stream) {
  beast::error_code ignored;
  const std::string client = socket_of(stream).remote_endpoint(ignored).address().to_string();
  beast::flat_buffer buffer;
  open.insert(&socket_of(stream));
  while (co_await one_request(stream, buffer, client)) {
    // A buffer that held a large body is not kept by an idle connection.
    if (buffer.size() == 0 && buffer.capacity() > 65536) buffer.shrink_to_fit();
  }
  open.erase(&socket_of(stream));
  socket_of(stream).shutdown(tcp::socket::shutdown_send, ignored);
}

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
