// Reads through io_uring (direct_reader.h), by liburing.
//
// The thread that calls read() submits: a wake-up of another one takes longer than the call. A
// thread of the reader waits for answers at an event file, not in the ring (a thread that needs one
// looks there itself for a while, poll()): so it goes on when a
// sandbox has forbidden io_uring's calls. What was submitted by then is answered as before, and the
// rest is read by threads.
#include "lib/runtime/experts/direct_reader.h"

#ifdef KTX_URING
#include <liburing.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <deque>
#include <mutex>
#include <system_error>
#include <thread>
#include <vector>

#include "lib/support/signal_block.h"

namespace ktx::runtime {
namespace {

constexpr unsigned kDepth = 64;  // reads in flight

class RingReader final : public DirectReader {
 public:
  explicit RingReader(const OpenedFile& file) : file_(file) {
    for (uint32_t i = 0; i < kDepth; ++i) free_.push_back(i);
  }

  bool open() {
    if (io_uring_queue_init(kDepth, &ring_, IORING_SETUP_CLAMP) != 0) return false;
    has_ring_ = true;
    event_ = eventfd(0, EFD_CLOEXEC);
    if (event_ < 0 || io_uring_register_eventfd(&ring_, event_) != 0) return false;
    try {
      const SignalBlock block;
      thread_ = std::thread([this] { answer(); });
    } catch (const std::system_error&) {
      return false;
    }
    return true;
  }

  ~RingReader() override {
    {
      const std::lock_guard lock(mutex_);
      stopping_ = true;
      waiting_.clear();
    }
    wake();
    if (thread_.joinable()) thread_.join();
    threads_.reset();
    if (has_ring_) io_uring_queue_exit(&ring_);
    if (event_ >= 0) ::close(event_);
  }

  void read(std::span<const DirectRead> reads) override {
    const std::lock_guard lock(mutex_);
    if (threads_) return threads_->read(reads);
    waiting_.insert(waiting_.end(), reads.begin(), reads.end());
    submit();
  }
  void poll() override {
    std::vector<Answer> answers;
    {
      const std::unique_lock lock(mutex_, std::try_to_lock);
      if (!lock || io_uring_cq_ready(&ring_) == 0) return;
      take_answers(answers);
    }
    for (const Answer& each : answers) file_.done(each.read.ticket, error_of(each));
  }
  void drop() override {
    std::deque<DirectRead> dropped;
    {
      const std::lock_guard lock(mutex_);
      dropped.swap(waiting_);
      if (threads_) threads_->drop();
    }
    for (const DirectRead& read : dropped) file_.done(read.ticket, ECANCELED);
  }
  std::string_view name() const override { return "io_uring"; }

 private:
  void wake() const {
    const uint64_t one = 1;
    while (event_ >= 0 && ::write(event_, &one, sizeof one) < 0 && errno == EINTR) continue;
  }

  // Holds the lock.
  void submit() {
    while (!waiting_.empty() && !free_.empty()) {
      io_uring_sqe* const entry = io_uring_get_sqe(&ring_);
      if (!entry) break;
      const uint32_t place = free_.back();
      free_.pop_back();
      const DirectRead& read = reads_[place] = waiting_.front();
      waiting_.pop_front();
      io_uring_prep_read(entry, file_.fd, read.to, static_cast<unsigned>(read.bytes), read.offset);
      entry->user_data = place;
      prepared_.push_back(place);
    }
    while (!prepared_.empty()) {
      const int taken = io_uring_submit(&ring_);
      if (taken == -EINTR) continue;
      const bool busy = taken == 0 || taken == -EAGAIN || taken == -EBUSY;
      // Answers are on their way, and the thread that takes them submits the rest.
      if (busy && flying_ > 0) return;
      if (taken <= 0) return go_on_by_threads();
      flying_ += taken;
      prepared_.erase(prepared_.begin(), prepared_.begin() + taken);
    }
  }

  // Holds the lock. What the kernel has not taken it never will.
  void go_on_by_threads() {
    threads_ = open_thread_reader(file_);
    std::vector<DirectRead> rest;
    for (const uint32_t place : prepared_) rest.push_back(reads_[place]);
    rest.insert(rest.end(), waiting_.begin(), waiting_.end());
    prepared_.clear();
    waiting_.clear();
    threads_->read(rest);
  }

  struct Answer {
    DirectRead read;
    int result = 0;
  };

  // Holds the lock.
  void take_answers(std::vector<Answer>& answers) {
    answers.clear();
    unsigned head = 0, count = 0;
    io_uring_cqe* entry = nullptr;
    io_uring_for_each_cqe(&ring_, head, entry) {
      const auto place = static_cast<uint32_t>(entry->user_data);
      answers.push_back({reads_[place], entry->res});
      free_.push_back(place);
      ++count;
    }
    io_uring_cq_advance(&ring_, count);
    flying_ -= static_cast<int64_t>(count);
    if (!threads_) submit();
  }

  void answer() {
    std::vector<Answer> answers;
    while (true) {
      uint64_t events = 0;
      if (::read(event_, &events, sizeof events) < 0 && errno != EINTR) return;
      {
        const std::lock_guard lock(mutex_);
        take_answers(answers);
      }
      for (const Answer& each : answers) file_.done(each.read.ticket, error_of(each));
      const std::lock_guard lock(mutex_);
      if (stopping_ && flying_ == 0) return;
    }
  }

  int error_of(const Answer& answer) const {
    if (answer.result < 0 && answer.result != -EINTR && answer.result != -EAGAIN) {
      return -answer.result;
    }
    const bool whole =
        answer.result >= 0 && static_cast<uint64_t>(answer.result) >= answer.read.needed;
    if (!whole) return read_by_call(file_, answer.read);  // of a file that ends there, or in pieces
    return file_.fault ? file_.fault(answer.read) : 0;
  }

  const OpenedFile file_;
  io_uring ring_ = {};
  bool has_ring_ = false;
  int event_ = -1;
  std::mutex mutex_;
  std::deque<DirectRead> waiting_;
  std::array<DirectRead, kDepth> reads_;  // submitted, or about to be
  std::vector<uint32_t> free_, prepared_;
  int64_t flying_ = 0;
  bool stopping_ = false;
  std::unique_ptr<DirectReader> threads_;  // from the refusal on
  std::thread thread_;
};

}  // namespace

std::unique_ptr<DirectReader> open_ring_reader(const OpenedFile& file) {
  auto reader = std::make_unique<RingReader>(file);
  return reader->open() ? std::move(reader) : nullptr;
}

}  // namespace ktx::runtime

#else

namespace ktx::runtime {

std::unique_ptr<DirectReader> open_ring_reader(const OpenedFile&) {
  return nullptr;
}

}  // namespace ktx::runtime
#endif
