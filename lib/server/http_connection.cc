// One connection of the HTTP server:
//
//   read a header -> read its body -> hand to a handler -> write what the reply has,
//   until its end -> again
#include <fmt/format.h>
#include <sys/socket.h>

#include <algorithm>
#include <boost/asio/post.hpp>
#include <boost/asio/write.hpp>
#include <boost/beast/http/parser.hpp>
#include <boost/beast/http/read.hpp>
#include <boost/beast/http/string_body.hpp>
#include <cerrno>
#include <chrono>
#include <memory>
#include <optional>

#include "lib/server/http_core.h"

namespace ktx::server {
namespace {

namespace http = boost::beast::http;
using Clock = std::chrono::steady_clock;

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

// What is wrong with a request that never became one, and what to do.
std::string_view plain_message(int status) {
  switch (status) {
    case 400:
      return "this is no HTTP/1.1 request (a server without --tls-cert takes http://, not "
             "https://)";
    case 413:
      return "the body is larger than this server takes; --max-body changes that";
    case 431:
      return "the header of the request is too large";
    case 503:
      return "too many large requests at once; try again";
    default:
      return status_text(status);
  }
}

std::string plain_error(int status) {
  const std::string body = fmt::format(
      R"({{"error":{{"message":"{}","type":"invalid_request_error","param":null,"code":null}}}})",
      plain_message(status));
  return fmt::format(
      "HTTP/1.1 {} {}\r\nContent-Type: application/json\r\nConnection: close\r\n"
      "Content-Length: {}\r\n\r\n{}",
      status, status_text(status), body.size(), body);
}

// Ends a read in time and leaves the connection open, so that an answer can say so. The
// stream's own limit, which closes it, stands a moment behind.
class ReadLimit {
 public:
  ReadLimit(asio::io_context& io, PlainStream& stream, int seconds)
      : state_(std::make_shared<State>(io, stream.socket())) {
    stream.expires_after(std::chrono::seconds(seconds + 1));
    state_->timer.expires_after(std::chrono::seconds(seconds));
    state_->timer.async_wait([state = state_](const beast::error_code& error) {
      if (error || state->over) return;
      state->late = true;
      beast::error_code ignored;
      state->socket.cancel(ignored);
    });
  }
  ~ReadLimit() {
    state_->over = true;
    state_->timer.cancel();
  }
  ReadLimit(const ReadLimit&) = delete;
  ReadLimit& operator=(const ReadLimit&) = delete;
  bool late() const { return state_->late; }

 private:
  struct State {
    State(asio::io_context& io, tcp::socket& socket) : timer(io), socket(socket) {}
    asio::steady_timer timer;
    tcp::socket& socket;  // not after `over`
    bool late = false, over = false;
  };
  std::shared_ptr<State> state_;
};

tcp::socket& socket_of(PlainStream& stream) {
  return stream.socket();
}
tcp::socket& socket_of(TlsStream& stream) {
  return stream.next_layer().socket();
}

}  // namespace

// Waits until the client closes; a pipelined request ends the watch.
template <class Stream>
void HttpServer::Core::watch(Stream& stream, const std::shared_ptr<QueuedReply>& reply) {
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
asio::awaitable<bool> HttpServer::Core::answer(Stream& stream, QueuedReply& reply, int64_t& sent) {
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
  idle.insert(&lowest.socket());
  std::optional<ReadLimit> limit(std::in_place, io, lowest, options.idle_seconds);
  const auto [header_error, header_size] =
      co_await http::async_read_header(stream, buffer, parser, kAwait);
  idle.erase(&lowest.socket());
  if (header_error) {
    const int status = limit->late() ? 408 : status_of(header_error);
    limit.reset();
    // A connection that never said anything is closed without a word.
    if (status != 0 && !(status == 408 && !parser.got_some())) co_await refuse(stream, status);
    co_return false;
  }
  limit.reset();
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
  limit.emplace(io, lowest, options.body_seconds);
  const auto [body_error, body_size] = co_await http::async_read(stream, buffer, parser, kAwait);
  if (body_error) {
    const int status = limit->late() ? 408 : status_of(body_error);
    limit.reset();
    if (status != 0) co_await refuse(stream, status);
    co_return false;
  }
  limit.reset();

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

  const auto reply = std::make_shared<QueuedReply>(
      io, options.unsent_bytes,
      QueuedReply::Form{.chunked = message.version() % 10 >= 1,
                        .head = request->method == "HEAD",
                        .keep_alive = message.keep_alive() && !draining},
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

template asio::awaitable<void> HttpServer::Core::serve(PlainStream& stream);
template asio::awaitable<void> HttpServer::Core::serve(TlsStream& stream);

}  // namespace ktx::server
