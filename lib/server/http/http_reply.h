// The response to one request. Handlers fill it on any thread; the connection sends it on the
// I/O thread.
//
//   reply.write("data: 1\n\n")          any thread: kept, the connection is woken
//   reply.take(last, gone)              I/O thread: what is to be sent
//   co_await reply.wake_timer()...      nothing was: wait
//
// Includes Boost, so only the files of the HTTP server include this one.
#pragma once

#include <boost/asio/io_context.hpp>
#include <boost/asio/steady_timer.hpp>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>

#include "lib/server/http/http_server.h"

namespace ktx::server {

class QueuedReply final : public HttpReply, public std::enable_shared_from_this<QueuedReply> {
 public:
  // The parts of the request that decide how it is answered.
  struct Form {
    bool chunked = true;  // HTTP/1.1
    bool head = false;    // HEAD: no body
    bool keep_alive = true;
  };
  // A client that leaves more than `unsent_bytes` of a stream unread counts as gone. `more`
  // headers are added to those of the answer.
  QueuedReply(boost::asio::io_context& io, uint64_t unsent_bytes, Form form, HttpHeaders more);

  void send(int status, std::string_view content_type, std::string body,
            const HttpHeaders& headers) override;
  void begin(int status, std::string_view content_type, const HttpHeaders& headers) override;
  void write(std::string piece) override;
  void end() override;
  void break_off() override { set_gone(); }
  void on_gone(std::function<void()> call) override;
  bool begun() const override;
  void set_user(const std::string& owner, const std::string& key) override;
  void set_model(const std::string& id) override;
  void add_note(const std::string& what) override;
  void add_tokens(int64_t prompt, int64_t cached, int64_t completion) override;
  void add_image_tokens(int64_t tokens) override;

  // For the connection.
  void set_gone();
  // What is to be sent; sets `last` with the last of it. Empty: wait.
  std::string take(bool& last, bool& gone);
  boost::asio::steady_timer& wake_timer() { return wake_; }
  bool keep_alive() const { return form_.keep_alive; }
  int status() const;
  HttpFigures figures() const;
  // Has begun a stream of events, in which comments may stand.
  bool takes_comments() const;
  bool gone() const;
  // Why it is no answer, for the log.
  void set_error(std::string what) override;
  std::string error() const;

 private:
  std::string head_of(int status, std::string_view content_type, const HttpHeaders& headers);
  void push(std::string text, bool last, int status);
  void wake();

  boost::asio::io_context& io_;
  boost::asio::steady_timer wake_;  // used on the I/O thread only
  const uint64_t unsent_limit_;
  Form form_;
  const HttpHeaders more_;

  mutable std::mutex mutex_;
  std::string unsent_;
  bool done_ = false;
  bool gone_ = false;
  int status_ = 0;
  bool events_ = false;
  HttpFigures figures_;
  std::string error_;
  std::function<void()> on_gone_;
};

}  // namespace ktx::server
