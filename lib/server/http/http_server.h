// An HTTP/1.1 server: bytes in, bytes out, nothing about models.
//
//   HttpServer server(options, [](const HttpRequest& request, const HttpReplyPtr& reply) {
//     if (request.path == "/hello") return reply->send(200, "text/plain", "hi\n");
//     reply->begin(200, "text/event-stream");
//     reply->write("data: 1\n\n");      // from any thread, as long as one likes
//     reply->end();
//   });
//   KTX_TRY(server.start());
//
// Event-driven: one thread moves all bytes (Boost.Asio coroutines), so an idle connection or a
// streaming response costs some kilobytes and no thread. Handlers run on a few workers;
// handlers named by options.quick run on the I/O thread itself.
//
// Hostile clients: header, body, bodies in flight, connections, time and rate are limited.
// Bodies count as they arrive, not as announced, and are read after options.admit has accepted
// the head. When connections or memory run short, the connections that wait longest or hold
// most are closed (arrivals.h). Malformed requests get 4xx and are closed (http_head.h); an
// exception of a handler gets 500. Pipelined requests are answered in order. A disconnect is
// noticed while the response is computed.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "lib/support/result.h"

namespace ktx::server {

struct HttpRequest {
  std::string method;  // "GET"
  std::string path;    // decoded, without the query: "/v1/models"
  std::string query;   // as it came, without '?'
  std::vector<std::pair<std::string, std::string>> headers;  // names in lower case
  std::string body;
  std::string client;  // address
  std::string id;      // X-Request-Id: the client's, or one of ours

  // "" when absent; `name` in lower case.
  std::string_view header(std::string_view name) const;
  // The value of `name` in the query, decoded; "" when absent.
  std::string query_value(std::string_view name) const;
};

// Whose answer it is and what it took, for the log.
struct HttpFigures {
  std::string owner, key;  // "": there are no keys
  std::string model;       // that answered
  int64_t prompt_tokens = 0;
  int64_t cached_tokens = 0;  // of these
  int64_t completion_tokens = 0;
  int64_t image_tokens = 0;        // of those of prompts, paid before
  std::vector<std::string> notes;  // add_note()
};

using HttpHeaders = std::vector<std::pair<std::string, std::string>>;

// The answer to one request. Thread-safe; calls after the end, or after the client
// has gone, do nothing.
class HttpReply {
 public:
  virtual ~HttpReply() = default;
  // All of it at once.
  virtual void send(int status, std::string_view content_type, std::string body,
                    const HttpHeaders& headers = {}) = 0;
  // Piece by piece.
  virtual void begin(int status, std::string_view content_type,
                     const HttpHeaders& headers = {}) = 0;
  virtual void write(std::string piece) = 0;
  virtual void end() = 0;
  // Ends it so that the client sees that its end is missing.
  virtual void break_off() {}
  // Called once, soon, if the client goes away before the end; at once if it has.
  virtual void on_gone(std::function<void()> call) = 0;
  virtual bool begun() const = 0;
  // For the log: who asked, which model answered, and with how many tokens.
  virtual void set_user(const std::string& /*owner*/, const std::string& /*key*/) {}
  virtual void set_model(const std::string& /*id*/) {}
  virtual void set_error(std::string /*what*/) {}
  virtual void add_tokens(int64_t /*prompt*/, int64_t /*cached*/, int64_t /*completion*/) {}
  virtual void add_image_tokens(int64_t /*tokens*/) {}
  // Before it begins: a header X-Ktx-Note, for what was done otherwise than the client may think.
  // The log has it, too.
  virtual void add_note(const std::string& /*what*/) {}
};
using HttpReplyPtr = std::shared_ptr<HttpReply>;

struct HttpLogEntry {
  std::string id;  // HttpRequest::id
  HttpFigures figures;
  std::string client, method, path;
  std::string error;  // of ours, "" for none
  int status = 0;
  int64_t bytes_in = 0;   // of the body
  int64_t bytes_out = 0;  // of the answer, head and framing included
  double seconds = 0;     // from the whole request to the end of the answer
  bool gone = false;      // the client did not wait for the end
};

// Requests of each kind have workers of their own, so that what takes long holds up no short one:
// milliseconds; a schema of 100 KB; images, which take seconds.
enum class HttpWork { Short, Long, Images };
inline constexpr size_t kHttpWorks = 3;

struct HttpOptions {
  std::string host = "127.0.0.1";
  uint16_t port = 8080;         // 0: any free one
  int workers = 2;              // of each kind (HttpWork)
  std::string tls_certificate;  // PEM files; both or none
  std::string tls_key;

  uint64_t header_bytes = 16u << 10;
  uint64_t body_bytes = 32u << 20;
  uint64_t bodies_bytes = 512u << 20;  // of all requests being read or handled
  uint64_t unsent_bytes = 16u << 20;   // of one answer whose client does not read
  int64_t connections = 10000;
  int idle_seconds = 75;        // between requests
  int header_seconds = 30;      // for a header to arrive, from its first byte or the connection on
  int body_seconds = 120;       // for a body to arrive,
  int stall_seconds = 10;       // of which in so many
  int body_rate = 1024;         // so many bytes a second come at least
  int write_seconds = 60;       // for a client to take a piece
  int half_closed_seconds = 2;  // for an answer to a client that has closed its side
  int comment_seconds = 15;     // a stream of events that is silent for so long gets a comment

  // Sees a request that has a body before the body is read. False: the reply is the answer, and
  // the connection ends with it. Null: all may go on.
  std::function<bool(const HttpRequest&, const HttpReplyPtr&)> admit;
  std::function<bool(const HttpRequest&)> quick;  // null: none
  // How long a request may keep a worker; null: Short. A large body makes it Long at least.
  std::function<HttpWork(const HttpRequest&)> work;
  std::function<void(const HttpLogEntry&)> log;  // called on the I/O thread
  // The body of an answer to a request that the server itself does not take (too large, too slow)
  // or fails at, in the form of its protocol; may change the status. Null: OpenAI's form.
  std::function<std::string(const HttpRequest&, int& status, std::string_view message)> fault_body;
  // More headers for an answer (CORS).
  std::function<HttpHeaders(const HttpRequest&)> more_headers;
};

struct HttpCounts {
  int64_t connections = 0;  // open now
  int64_t requests = 0;     // since the start
};

class HttpServer {
 public:
  using Handler = std::function<void(const HttpRequest&, const HttpReplyPtr&)>;

  HttpServer(HttpOptions options, Handler handler);
  ~HttpServer();  // closes everything
  HttpServer(const HttpServer&) = delete;
  HttpServer& operator=(const HttpServer&) = delete;

  // Listens and serves in threads of its own. Fails when the address cannot be had or
  // the certificate cannot be read.
  Status start();
  uint16_t port() const;
  HttpCounts counts() const;
  // Reads certificate and key again, for connections from now on. On failure those of before
  // stay. Only where there is TLS, after start().
  Status reload_certificate();

  // Calls on a worker of the request's kind; an exception is an error of the reply.
  void run_later(const HttpRequest& request, const HttpReplyPtr& reply, std::function<void()> call);

  // The same on a thread of its own, for what waits long: the caller limits how many there are.
  void run_apart(const HttpReplyPtr& reply, std::function<void()> call);

  // Takes no more connections, and closes each when its answer is out.
  void drain();
  void stop();  // waits for all calls

 private:
  struct Core;
  std::shared_ptr<Core> core_;
};

// "%41b" -> "Ab"; a wrong escape stays as it is.
std::string decode_url(std::string_view text, bool plus_is_space = false);
std::string_view status_text(int status);

}  // namespace ktx::server
