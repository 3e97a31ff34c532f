#include "lib/server/answer/kept_streams.h"

#include <algorithm>
#include <atomic>

#include "lib/server/answer/answer_job.h"

namespace ktx::server {
namespace {

using Clock = std::chrono::steady_clock;

constexpr size_t kMostBytes = 4 << 20;
constexpr size_t kMostStreams = 32;
constexpr auto kKept = std::chrono::minutes(5);

int64_t now_seconds() {
  return std::chrono::duration_cast<std::chrono::seconds>(
             std::chrono::system_clock::now().time_since_epoch())
      .count();
}

}  // namespace

class KeptStream {
 public:
  enum class Phase { Waiting, Streams, Ended, Forgotten };

  void begin(std::string_view content_type) {
    const std::lock_guard lock(mutex_);
    if (phase_ != Phase::Waiting) return;
    phase_ = Phase::Streams;
    content_type_ = content_type;
  }

  void add(const std::string& piece) {
    std::vector<HttpReplyPtr> readers;
    {
      const std::lock_guard lock(mutex_);
      if (phase_ != Phase::Streams) return;
      bytes_ += piece;
      if (bytes_.size() > kMostBytes + kMostBytes / 4) {  // not with each piece
        gone_bytes_ += static_cast<int64_t>(bytes_.size() - kMostBytes);
        bytes_.erase(0, bytes_.size() - kMostBytes);
      }
      readers = readers_;
    }
    for (const HttpReplyPtr& reader : readers) reader->write(piece);
  }

  void end(Phase phase) {
    std::vector<HttpReplyPtr> readers;
    {
      const std::lock_guard lock(mutex_);
      if (phase_ == Phase::Ended || phase_ == Phase::Forgotten) return;
      phase_ = phase;
      ended_ = Clock::now();
      ended_at_ = now_seconds();
      readers.swap(readers_);
    }
    for (const HttpReplyPtr& reader : readers) reader->end();
  }

  ApiStatus read(int64_t from, const HttpReplyPtr& reply) {
    // Held while the first bytes are written: those that come meanwhile come behind them.
    const std::lock_guard lock(mutex_);
    if (phase_ == Phase::Waiting) {
      return ApiError{503, "the answer has not begun yet; try again", "", "not_begun", 1};
    }
    if (from < gone_bytes_) {
      return ApiError{400,
                      "the beginning of the stream is not kept any more: it has become too long",
                      "from", "offset_lost"};
    }
    const int64_t end = gone_bytes_ + static_cast<int64_t>(bytes_.size());
    reply->begin(200, content_type_, stream_headers());
    if (from < end) reply->write(bytes_.substr(static_cast<size_t>(from - gone_bytes_)));
    if (phase_ != Phase::Streams) {
      reply->end();
    } else {
      // A reader that has gone takes nothing; so many are enough for pages that are loaded again.
      if (readers_.size() >= 8) readers_.erase(readers_.begin());
      readers_.push_back(reply);
    }
    return {};
  }

  // Ends the computation when the last client of the answer has gone.
  void set_cancel(std::function<void()> cancel) {
    {
      const std::lock_guard lock(mutex_);
      if (!cancelled_) {
        cancel_ = std::move(cancel);
        return;
      }
    }
    cancel();
  }
  void cancel() {
    std::function<void()> call;
    {
      const std::lock_guard lock(mutex_);
      cancelled_ = true;
      call.swap(cancel_);
    }
    if (call) call();
  }

  Phase phase() const {
    const std::lock_guard lock(mutex_);
    return phase_;
  }
  bool is_over() const {
    const Phase now = phase();
    return now == Phase::Ended || now == Phase::Forgotten;
  }
  Clock::time_point ended() const {
    const std::lock_guard lock(mutex_);
    return ended_;
  }
  KeptStreams::State state(const std::string& name) const {
    const std::lock_guard lock(mutex_);
    return {name, phase_ == Phase::Ended, gone_bytes_ + static_cast<int64_t>(bytes_.size()), begun_,
            ended_at_};
  }

 private:
  mutable std::mutex mutex_;
  Phase phase_ = Phase::Waiting;
  std::string content_type_, bytes_;
  int64_t gone_bytes_ = 0;  // of the beginning, that are not kept any more
  int64_t begun_ = now_seconds(), ended_at_ = 0;
  Clock::time_point ended_{};
  bool cancelled_ = false;
  std::function<void()> cancel_;
  std::vector<HttpReplyPtr> readers_;
};

namespace {

// Writes to the client, as long as there is one, and to the stream.
class KeptReply final : public HttpReply, public std::enable_shared_from_this<KeptReply> {
 public:
  KeptReply(std::shared_ptr<KeptStream> stream, HttpReplyPtr client,
            std::function<void(int64_t)> count)
      : stream_(std::move(stream)), client_(std::move(client)), count_(std::move(count)) {}
  // A request that was given up before it was answered.
  ~KeptReply() override { stream_->end(KeptStream::Phase::Forgotten); }

  void watch() {
    client_->on_gone([kept = weak_from_this()] {
      if (const auto reply = kept.lock()) reply->client_left_ = true;
    });
    stream_->set_cancel([kept = weak_from_this()] {
      if (const auto reply = kept.lock()) reply->cancel();
    });
  }

  void send(int status, std::string_view content_type, std::string body,
            const HttpHeaders& headers) override {
    begun_ = true;
    stream_->end(KeptStream::Phase::Forgotten);  // before its client can ask for it
    client_->send(status, content_type, std::move(body), headers);
  }
  void begin(int status, std::string_view content_type, const HttpHeaders& headers) override {
    begun_ = true;
    stream_->begin(content_type);
    client_->begin(status, content_type, headers);
  }
  void write(std::string piece) override {
    stream_->add(piece);
    client_->write(std::move(piece));
  }
  void end() override {
    client_->end();
    stream_->end(KeptStream::Phase::Ended);
  }
  void break_off() override {
    client_->break_off();
    stream_->end(KeptStream::Phase::Ended);
  }
  // Only drop() and a newer stream of the name end the answer, not the client.
  void on_gone(std::function<void()> call) override {
    {
      const std::lock_guard lock(mutex_);
      if (!cancelled_) {
        on_cancel_ = std::move(call);
        return;
      }
    }
    call();
  }
  bool begun() const override { return begun_; }
  void set_user(const std::string& owner, const std::string& key) override {
    client_->set_user(owner, key);
  }
  void set_model(const std::string& id) override { client_->set_model(id); }
  void add_note(const std::string& what) override { client_->add_note(what); }
  void set_error(std::string what) override { client_->set_error(std::move(what)); }
  void add_tokens(int64_t prompt, int64_t cached, int64_t completion) override {
    int64_t paid = 0;  // before; each choice has a prompt, and images are paid once
    {
      const std::lock_guard lock(mutex_);
      paid = std::min(prompt, image_tokens_);
      image_tokens_ -= paid;
    }
    // The log has had the line of a client that has left.
    if (client_left_) return count_(prompt - paid + completion);
    client_->add_tokens(prompt, cached, completion);
  }
  void add_image_tokens(int64_t tokens) override {
    {
      const std::lock_guard lock(mutex_);
      image_tokens_ += tokens;
    }
    client_->add_image_tokens(tokens);
  }

 private:
  void cancel() {
    std::function<void()> call;
    {
      const std::lock_guard lock(mutex_);
      cancelled_ = true;
      call.swap(on_cancel_);
    }
    if (call) call();
    if (!begun_) send_error(*client_, {400, "the request was cancelled", "", "cancelled"});
  }

  const std::shared_ptr<KeptStream> stream_;
  const HttpReplyPtr client_;
  const std::function<void(int64_t)> count_;
  std::atomic<bool> client_left_ = false, begun_ = false;
  std::mutex mutex_;          // of what follows
  int64_t image_tokens_ = 0;  // that are paid, and were in no prompt of add_tokens() yet
  bool cancelled_ = false;
  std::function<void()> on_cancel_;
};

}  // namespace

HttpReplyPtr KeptStreams::keep(const std::string& owner, const std::string& name,
                               HttpReplyPtr reply, std::function<void(int64_t)> count) {
  drop(owner, name);
  const auto stream = std::make_shared<KeptStream>();
  {
    const std::lock_guard lock(mutex_);
    forget_old(owner);
    const auto own = std::count_if(streams_.begin(), streams_.end(),
                                   [&](const auto& entry) { return entry.first.first == owner; });
    if (own >= static_cast<int64_t>(kMostStreams)) return reply;
    streams_[{owner, name}] = stream;
  }
  const auto kept = std::make_shared<KeptReply>(stream, std::move(reply), std::move(count));
  kept->watch();
  return kept;
}

// Streams without a client, of all owners, and of the owner's the oldest ended
// ones.
void KeptStreams::forget_old(const std::string& owner) {
  std::erase_if(streams_, [](const auto& entry) {
    const KeptStream& stream = *entry.second;
    return stream.phase() == KeptStream::Phase::Forgotten ||
           (stream.is_over() && Clock::now() - stream.ended() > kKept);
  });
  for (;;) {
    size_t own = 0;
    auto oldest = streams_.end();
    for (auto at = streams_.begin(); at != streams_.end(); ++at) {
      if (at->first.first != owner) continue;
      ++own;
      if (!at->second->is_over()) continue;
      if (oldest == streams_.end() || at->second->ended() < oldest->second->ended()) oldest = at;
    }
    if (own < kMostStreams || oldest == streams_.end()) return;
    streams_.erase(oldest);
  }
}

ApiStatus KeptStreams::read(const std::string& owner, const std::string& name, int64_t from,
                            const HttpReplyPtr& reply) {
  std::shared_ptr<KeptStream> stream;
  {
    const std::lock_guard lock(mutex_);
    forget_old(owner);
    const auto at = streams_.find({owner, name});
    if (at != streams_.end()) stream = at->second;
  }
  if (!stream) {
    return ApiError{404, "no such stream, or it has ended some time ago", "conv_id", "no_stream"};
  }
  return stream->read(from, reply);
}

void KeptStreams::drop(const std::string& owner, const std::string& name) {
  std::shared_ptr<KeptStream> stream;
  {
    const std::lock_guard lock(mutex_);
    const auto at = streams_.find({owner, name});
    if (at == streams_.end()) return;
    stream = std::move(at->second);
    streams_.erase(at);
  }
  stream->cancel();
}

std::vector<KeptStreams::State> KeptStreams::find(const std::string& owner,
                                                  const std::vector<std::string>& names) {
  const std::lock_guard lock(mutex_);
  forget_old(owner);
  std::vector<State> out;
  for (const auto& [key, stream] : streams_) {
    const auto is = [&name = key.second](const std::string& asked) {
      return name == asked || name.starts_with(asked + "::");
    };
    if (key.first != owner || std::none_of(names.begin(), names.end(), is)) continue;
    out.push_back(stream->state(key.second));
  }
  return out;
}

}  // namespace ktx::server
