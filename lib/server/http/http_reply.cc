#include "lib/server/http/http_reply.h"

#include <fmt/format.h>

#include <boost/asio/post.hpp>
#include <utility>

namespace ktx::server {

QueuedReply::QueuedReply(boost::asio::io_context& io, uint64_t unsent_bytes, Form form,
                         HttpHeaders more)
    : io_(io),
      wake_(io, boost::asio::steady_timer::time_point::max()),
      unsent_limit_(unsent_bytes),
      form_(form),
      more_(std::move(more)) {}

void QueuedReply::send(int status, std::string_view content_type, std::string body,
                       const HttpHeaders& headers) {
  std::string text = head_of(status, content_type, headers);
  if (status != 204) text += fmt::format("Content-Length: {}\r\n", body.size());
  text += "\r\n";
  if (!form_.head) text += body;
  push(std::move(text), true, status);
}

void QueuedReply::begin(int status, std::string_view content_type, const HttpHeaders& headers) {
  if (!form_.chunked) form_.keep_alive = false;
  std::string text = head_of(status, content_type, headers);
  text += form_.chunked ? "Transfer-Encoding: chunked\r\n\r\n" : "\r\n";
  {
    const std::lock_guard lock(mutex_);
    events_ = content_type.starts_with("text/event-stream");
  }
  push(std::move(text), form_.head, status);
}

void QueuedReply::write(std::string piece) {
  if (piece.empty()) return;
  push(form_.chunked ? fmt::format("{:x}\r\n{}\r\n", piece.size(), piece) : std::move(piece), false,
       0);
}

void QueuedReply::end() {
  push(form_.chunked ? "0\r\n\r\n" : "", true, 0);
}

void QueuedReply::on_gone(std::function<void()> call) {
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

bool QueuedReply::begun() const {
  const std::lock_guard lock(mutex_);
  return status_ != 0;
}

void QueuedReply::set_gone() {
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

std::string QueuedReply::take(bool& last, bool& gone) {
  const std::lock_guard lock(mutex_);
  last = done_;
  gone = gone_;
  return std::exchange(unsent_, {});
}

int QueuedReply::status() const {
  const std::lock_guard lock(mutex_);
  return status_;
}

void QueuedReply::set_user(const std::string& owner, const std::string& key) {
  const std::lock_guard lock(mutex_);
  figures_.owner = owner;
  figures_.key = key;
}

void QueuedReply::set_model(const std::string& id) {
  const std::lock_guard lock(mutex_);
  figures_.model = id;
}

void QueuedReply::add_note(const std::string& what) {
  constexpr size_t kMostNotes = 16, kMostBytes = 300;
  const std::lock_guard lock(mutex_);
  if (figures_.notes.size() == kMostNotes) return;
  std::string& note = figures_.notes.emplace_back(what.substr(0, kMostBytes));
  for (char& c : note) {
    if (c < 0x20 || c > 0x7E) c = '?';  // a header is ASCII
  }
}

void QueuedReply::add_tokens(int64_t prompt, int64_t cached, int64_t completion) {
  const std::lock_guard lock(mutex_);
  figures_.prompt_tokens += prompt;
  figures_.cached_tokens += cached;
  figures_.completion_tokens += completion;
}

void QueuedReply::add_image_tokens(int64_t tokens) {
  const std::lock_guard lock(mutex_);
  figures_.image_tokens += tokens;
}

HttpFigures QueuedReply::figures() const {
  const std::lock_guard lock(mutex_);
  return figures_;
}

bool QueuedReply::takes_comments() const {
  const std::lock_guard lock(mutex_);
  return events_ && !done_ && !gone_;
}

void QueuedReply::set_error(std::string what) {
  const std::lock_guard lock(mutex_);
  error_ = std::move(what);
}

std::string QueuedReply::error() const {
  const std::lock_guard lock(mutex_);
  return error_;
}

bool QueuedReply::gone() const {
  const std::lock_guard lock(mutex_);
  return gone_;
}

std::string QueuedReply::head_of(int status, std::string_view content_type,
                                 const HttpHeaders& headers) {
  std::string text = fmt::format("HTTP/1.1 {} {}\r\n", status, status_text(status));
  if (!content_type.empty()) text += fmt::format("Content-Type: {}\r\n", content_type);
  for (const HttpHeaders* list : {&more_, &headers}) {
    for (const auto& [name, value] : *list) text += fmt::format("{}: {}\r\n", name, value);
  }
  {
    const std::lock_guard lock(mutex_);
    for (const std::string& note : figures_.notes) text += fmt::format("X-Ktx-Note: {}\r\n", note);
  }
  text += form_.keep_alive ? "Connection: keep-alive\r\n" : "Connection: close\r\n";
  return text;
}

void QueuedReply::push(std::string text, bool last, int status) {
  bool too_much = false;
  std::function<void()> unneeded;  // destroyed without the lock: it may own much
  {
    const std::lock_guard lock(mutex_);
    if (done_ || gone_ || (status != 0 && status_ != 0)) return;
    if (status != 0) status_ = status;
    if (unsent_.empty()) {
      unsent_ = std::move(text);
    } else {
      unsent_ += text;
    }
    done_ = last;
    too_much = !last && unsent_.size() > unsent_limit_;
    if (last) unneeded.swap(on_gone_);
  }
  if (too_much) return set_gone();
  wake();
}

void QueuedReply::wake() {
  boost::asio::post(io_, [self = shared_from_this()] { self->wake_.cancel(); });
}

}  // namespace ktx::server
