// One connection of the HTTP server:
//
//   read a head -> may it go on? -> read its body -> hand to a handler -> write what the
//   reply has, until its end -> again
//
// Until the whole request has been received the connection is an Arrival, which later
// connections may displace.
#include <fmt/format.h>
#include <sys/socket.h>

#include <algorithm>
#include <boost/asio/post.hpp>
#include <boost/asio/write.hpp>
#include <cerrno>
#include <chrono>
#include <exception>
#include <memory>
#include <new>
#include <optional>
#include <random>

#include "lib/server/http/api_error.h"
#include "lib/server/http/http_body.h"
#include "lib/server/http/http_core.h"
#include "lib/server/http/http_head.h"

namespace ktx::server {
namespace {

using Clock = std::chrono::steady_clock;

// Read at once: little while a head arrives, since most connections wait.
constexpr size_t kHeadPart = 2048;
constexpr size_t kBodyPart = 64u << 10;

std::string error_json(std::string_view message, std::string_view type) {
  return fmt::format(R"({{"error":{{"message":"{}","type":"{}","param":null,"code":null}}}})",
                     message, type);
}

// The body of an answer to a request that is not taken, or that failed (500); null: not even its
// head was read.
std::string fault_body(const HttpOptions& options, const HttpRequest* request, int& status,
                       std::string_view message) {
  if (request != nullptr && options.fault_body) {
    return options.fault_body(*request, status, message);
  }
  return error_json(message, error_type(status));
}

std::string fault_answer(const HttpOptions& options, const HttpFault& fault,
                         const HttpRequest* request) {
  int status = fault.status;
  const std::string body = fault_body(options, request, status, fault.message);
  HttpHeaders headers;
  if (request != nullptr && options.more_headers) headers = options.more_headers(*request);
  if (fault.status == 503) headers.emplace_back("Retry-After", "2");
  if (fault.status == 415) headers.emplace_back("Accept-Encoding", "gzip");
  std::string text = fmt::format("HTTP/1.1 {} {}\r\nContent-Type: application/json\r\n", status,
                                 status_text(status));
  for (const auto& [name, value] : headers) text += fmt::format("{}: {}\r\n", name, value);
  return text + fmt::format("Connection: close\r\nContent-Length: {}\r\n\r\n{}", body.size(), body);
}

HttpFault too_late() {
  return {408, "the request did not come in time"};
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

// The client's, where it may stand in a header and a log, or a new one.
std::string request_id(std::string_view given) {
  const bool fit =
      !given.empty() && given.size() <= 128 && std::all_of(given.begin(), given.end(), [](char c) {
        return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') ||
               c == '-' || c == '_' || c == '.' || c == ':';
      });
  if (fit) return std::string(given);
  thread_local std::mt19937_64 random{std::random_device{}()};
  return fmt::format("req_{:016x}", random());
}

tcp::socket& socket_of(PlainStream& stream) {
  return stream.socket();
}
tcp::socket& socket_of(TlsStream& stream) {
  return stream.next_layer().socket();
}

}  // namespace

// Waits until the client closes; a pipelined request ends the watch. One that only says that it
// will send no more looks the same: what is ready soon still reaches it.
template <class Stream>
void HttpServer::Core::watch(Stream& stream, const std::shared_ptr<QueuedReply>& reply) {
  tcp::socket& socket = socket_of(stream);
  socket.async_wait(tcp::socket::wait_read, [this, reply, fd = socket.native_handle()](
                                                const beast::error_code& error) {
    if (error) return;
    char byte = 0;
    const ssize_t got = ::recv(fd, &byte, 1, MSG_PEEK | MSG_DONTWAIT);
    if (got < 0 && errno != EAGAIN && errno != EINTR) return reply->set_gone();
    if (got != 0) return;
    const auto timer = std::make_shared<asio::steady_timer>(io);
    timer->expires_after(std::chrono::seconds(options.half_closed_seconds));
    timer->async_wait([timer, weak = std::weak_ptr(reply)](const beast::error_code& ended) {
      const std::shared_ptr<QueuedReply> left = ended ? nullptr : weak.lock();
      if (left != nullptr) left->set_gone();
    });
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
      beast::error_code error;
      const size_t size = co_await asio::async_write(stream, asio::buffer(text), await_into(error));
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
    // A long prompt says nothing for a while: proxies and clients must not take the stream for
    // dead.
    const bool comments = reply.takes_comments() && options.comment_seconds > 0;
    reply.wake_timer().expires_at(comments
                                      ? Clock::now() + std::chrono::seconds(options.comment_seconds)
                                      : Clock::time_point::max());
    beast::error_code woken;  // "cancelled"; none: nothing came
    co_await reply.wake_timer().async_wait(await_into(woken));
    if (!woken && comments) reply.write(": waiting\n\n");
  }
}

template <class Stream>
asio::awaitable<void> HttpServer::Core::refuse(Stream& stream, const HttpFault& fault,
                                               const HttpRequest* request) {
  const std::string text = fault_answer(options, fault, request);
  beast::get_lowest_layer(stream).expires_after(std::chrono::seconds(5));
  beast::error_code ignored;
  co_await asio::async_write(stream, asio::buffer(text), await_into(ignored));
  co_await linger(stream);
}

// What the client still sends is read for a moment: closing at once would reset the connection
// before the answer is seen.
template <class Stream>
asio::awaitable<void> HttpServer::Core::linger(Stream& stream) {
  auto& lowest = beast::get_lowest_layer(stream);
  beast::error_code ignored;
  lowest.socket().shutdown(tcp::socket::shutdown_send, ignored);
  lowest.expires_after(std::chrono::seconds(2));
  std::string sink(kHeadPart, '\0');
  const Clock::time_point until = Clock::now() + std::chrono::seconds(2);
  while (Clock::now() < until) {
    beast::error_code error;
    co_await lowest.async_read_some(asio::buffer(sink), await_into(error));
    if (error) break;
  }
}

// Fills `head` from the bytes in `buffer` and those that come. False: the connection ends; a
// refused request has had its response.
template <class Stream>
asio::awaitable<bool> HttpServer::Core::read_head_of(Stream& stream, Arrival& arrival,
                                                     std::string& buffer, bool first,
                                                     HttpHead& head) {
  auto& lowest = beast::get_lowest_layer(stream);
  std::optional<HttpFault> fault;
  HeadScan scan;
  {
    std::optional<ReadLimit> limit(std::in_place, io, lowest,
                                   first ? options.header_seconds : options.idle_seconds);
    bool begun = first;
    for (;;) {
      const HeadScan::State state = scan.look(buffer);
      if (state == HeadScan::State::Wrong) {
        fault = HttpFault{400,
                          "this is no HTTP/1.1 request (a server without --tls-cert takes "
                          "http://, not https://)"};
        break;
      }
      const bool whole = state == HeadScan::State::Whole;
      if ((whole ? scan.size() : buffer.size()) > options.header_bytes) {
        fault = HttpFault{431, "the header of the request is too large"};
        break;
      }
      if (whole) break;
      // A client that has begun a request has less time than one that may come back.
      if (!begun && scan.begun()) limit.emplace(io, lowest, options.header_seconds);
      begun = begun || scan.begun();
      const size_t held = buffer.size();
      buffer.resize(held + kHeadPart);
      beast::error_code error;
      const size_t size = co_await stream.async_read_some(
          asio::buffer(buffer.data() + held, kHeadPart), await_into(error));
      buffer.resize(held + size);
      if (arrival.dropped()) co_return false;
      if (limit->late()) {
        // A connection that never sent anything is closed without a response.
        if (!scan.begun()) co_return false;
        fault = too_late();
        break;
      }
      if (error) co_return false;
    }
  }
  if (!fault) {
    HttpResult<HttpHead> read = read_head(std::string_view(buffer).substr(0, scan.size()));
    if (read) {
      head = read.take();
      buffer.erase(0, scan.size());
      co_return true;
    }
    fault = read.error();
  }
  co_await refuse(stream, *fault);
  co_return false;
}

// Fills `body` likewise. The time for it ends early for a client that sends too slowly.
template <class Stream>
asio::awaitable<bool> HttpServer::Core::read_body_of(Stream& stream, Arrival& arrival,
                                                     std::string& buffer,
                                                     const HttpRequest& request,
                                                     bool expects_continue, BodyReader& body) {
  auto& lowest = beast::get_lowest_layer(stream);
  buffer.erase(0, body.take(buffer));
  std::optional<HttpFault> fault = body.fault();
  if (expects_continue && !body.done() && !fault) {
    const std::string go_on = "HTTP/1.1 100 Continue\r\n\r\n";
    lowest.expires_after(std::chrono::seconds(options.write_seconds));
    beast::error_code ignored;
    co_await asio::async_write(stream, asio::buffer(go_on), await_into(ignored));
  }
  if (!body.done() && !fault) {
    const Clock::time_point end = Clock::now() + std::chrono::seconds(options.body_seconds);
    const int64_t enough = int64_t{options.body_rate} * options.stall_seconds;
    std::optional<ReadLimit> limit(std::in_place, io, lowest,
                                   std::min(options.stall_seconds, options.body_seconds));
    int64_t came = 0;         // since the limit was set
    size_t part = kHeadPart;  // grows with what comes: an announcement alone takes little
    while (!body.done() && !fault) {
      if (!arrival.hold(body.memory_bytes())) {
        fault = HttpFault{503, "too many large requests at once; try again"};
        break;
      }
      buffer.resize(part);
      beast::error_code error;
      const size_t size = co_await stream.async_read_some(asio::buffer(buffer), await_into(error));
      buffer.resize(size);
      if (size == part) part = std::min(4 * part, kBodyPart);
      // Let go of at once: its memory is another's by now.
      if (arrival.dropped()) {
        body.text() = std::string();
        fault = HttpFault{503, "too many large requests at once; try again"};
        break;
      }
      if (limit->late()) {
        fault = too_late();
        break;
      }
      if (error) co_return false;
      buffer.erase(0, body.take(buffer));
      fault = body.fault();
      came += static_cast<int64_t>(size);
      if (came < enough) continue;
      came = 0;
      const auto left = std::chrono::duration_cast<std::chrono::seconds>(end - Clock::now());
      limit.emplace(io, lowest,
                    std::clamp(static_cast<int>(left.count()), 0, options.stall_seconds));
    }
  }
  if (!fault) co_return true;
  body.text() = std::string();
  arrival.hold(0);
  co_await refuse(stream, *fault, &request);
  co_return false;
}

// One request and its answer. False: close.
template <class Stream>
asio::awaitable<bool> HttpServer::Core::one_request(Stream& stream, Arrival& arrival,
                                                    std::string& buffer, const std::string& client,
                                                    bool first) {
  auto& lowest = beast::get_lowest_layer(stream);
  arrival.wait();
  HttpHead head;
  if (!co_await read_head_of(stream, arrival, buffer, first, head)) co_return false;
  const Clock::time_point head_came = Clock::now();
  const auto request = std::make_shared<HttpRequest>(std::move(head.request));
  request->client = client;
  request->id = request_id(request->header("x-request-id"));
  const auto make_reply = [&](bool keep_alive) {
    return std::make_shared<QueuedReply>(
        io, options.unsent_bytes,
        QueuedReply::Form{.chunked = head.minor >= 1,
                          .head = request->method == "HEAD",
                          .keep_alive = keep_alive},
        options.more_headers ? options.more_headers(*request) : HttpHeaders());
  };
  const auto log = [&](const QueuedReply& reply, int64_t received, int64_t sent,
                       Clock::time_point begin) {
    if (!options.log) return;
    options.log({request->id, reply.figures(), client, request->method, request->path,
                 reply.error(), reply.status(), received, sent,
                 std::chrono::duration<double>(Clock::now() - begin).count(), reply.gone()});
  };

  BodyReader body(head, options.body_bytes);
  if (!body.done() && options.admit) {
    // A body is read only after its request has been admitted.
    const auto refusal = make_reply(false);
    if (!guard(*refusal, request.get(), [&] { return options.admit(*request, refusal); })) {
      requests += 1;
      int64_t sent = 0;
      co_await answer(stream, *refusal, sent);
      log(*refusal, 0, sent, head_came);
      co_await linger(stream);
      co_return false;
    }
  }
  if (!co_await read_body_of(stream, arrival, buffer, *request, head.expects_continue, body)) {
    co_return false;
  }
  const Clock::time_point begin = Clock::now();
  arrival.hold(body.memory_bytes());
  const uint64_t held = arrival.hand_over();
  request->body = std::move(body.text());
  const auto received = static_cast<int64_t>(request->body.size());
  requests += 1;

  const auto reply = make_reply(head.keep_alive && !draining);
  if (options.quick && options.quick(*request)) {
    guard(*reply, request.get(), [&] { return handler(*request, reply), true; });
    request->body = std::string();
    arrivals.give_back(held);
  } else {
    asio::post(workers_of(*request), [self = shared_from_this(), request, reply, held] {
      self->guard(*reply, request.get(), [&] { return self->handler(*request, reply), true; });
      request->body = std::string();
      asio::post(self->io, [self, held] { self->arrivals.give_back(held); });
    });
  }
  watch(stream, reply);
  int64_t sent = 0;
  const bool again_please = co_await answer(stream, *reply, sent);
  log(*reply, received, sent, begin);
  beast::error_code ignored;
  lowest.socket().cancel(ignored);  // the watch
  co_return again_please && !draining;
}

// Calls a handler: an exception is an error of this request alone. False: the handler returned
// false, or threw.
bool HttpServer::Core::guard(HttpReply& reply, const HttpRequest* request,
                             const std::function<bool()>& call) {
  std::string what = "unknown exception";
  try {
    return call();
  } catch (const std::bad_alloc&) {
    what = "not enough memory";
  } catch (const std::exception& error) {
    what = error.what();
  } catch (...) {
  }
  reply.set_error(what);
  if (reply.begun()) {
    reply.break_off();  // half an answer must not look like a whole one
  } else {
    int status = 500;
    std::string body = fault_body(options, request, status,
                                  "an error inside the server; the request was not answered");
    reply.send(status, "application/json", std::move(body), {});
  }
  return false;
}

template <class Stream>
asio::awaitable<void> HttpServer::Core::serve(Stream& stream, Arrival& arrival) {
  beast::error_code ignored;
  const std::string client = socket_of(stream).remote_endpoint(ignored).address().to_string();
  std::string buffer;
  for (bool first = true; co_await one_request(stream, arrival, buffer, client, first);
       first = false) {
    // A buffer that held a large body is not kept by an idle connection.
    if (buffer.capacity() > 4 * kHeadPart) buffer.shrink_to_fit();
  }
  socket_of(stream).shutdown(tcp::socket::shutdown_send, ignored);
}

template asio::awaitable<void> HttpServer::Core::refuse(PlainStream& stream, const HttpFault& fault,
                                                        const HttpRequest* request);
template asio::awaitable<void> HttpServer::Core::serve(PlainStream& stream, Arrival& arrival);
template asio::awaitable<void> HttpServer::Core::serve(TlsStream& stream, Arrival& arrival);

}  // namespace ktx::server
