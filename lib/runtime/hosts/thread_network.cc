#include "lib/runtime/hosts/thread_network.h"

#include <deque>
#include <mutex>
#include <utility>

namespace ktx::runtime {
namespace {

constexpr int kChannels = 2;

struct Letter {
  int from;
  MessageBytes message;
};

// What has been sent to a rank and not taken yet.
struct Letterbox {
  std::mutex mutex;
  std::deque<Letter> letters[kChannels];
  bool cut = false;
};

class ThreadNetwork final : public Network {
 public:
  ThreadNetwork(int rank, std::shared_ptr<std::vector<Letterbox>> boxes)
      : rank_(rank), boxes_(std::move(boxes)) {}

  int rank() const override { return rank_; }
  int ranks() const override { return static_cast<int>(boxes_->size()); }

  Status send(int to, Channel channel, MessageBytes message) override {
    if (is_cut()) return {};
    Letterbox& box = (*boxes_)[static_cast<size_t>(to)];
    const std::lock_guard lock(box.mutex);
    if (!box.cut) box.letters[static_cast<int>(channel)].push_back({rank_, std::move(message)});
    return {};
  }

  Result<bool> receive(Channel channel, int& from, MessageBytes& message) override {
    Letterbox& box = own();
    const std::lock_guard lock(box.mutex);
    std::deque<Letter>& letters = box.letters[static_cast<int>(channel)];
    if (box.cut || letters.empty()) return false;
    from = letters.front().from;
    message = std::move(letters.front().message);
    letters.pop_front();
    return true;
  }

  Result<bool> progress() override { return false; }
  void close(bool) override {}

  void cut() {
    const std::lock_guard lock(own().mutex);
    own().cut = true;
  }

 private:
  Letterbox& own() { return (*boxes_)[static_cast<size_t>(rank_)]; }
  bool is_cut() {
    const std::lock_guard lock(own().mutex);
    return own().cut;
  }

  const int rank_;
  const std::shared_ptr<std::vector<Letterbox>> boxes_;
};

}  // namespace

std::vector<std::unique_ptr<Network>> make_thread_network(int ranks) {
  const auto boxes = std::make_shared<std::vector<Letterbox>>(static_cast<size_t>(ranks));
  std::vector<std::unique_ptr<Network>> ends;
  for (int rank = 0; rank < ranks; ++rank) {
    ends.push_back(std::make_unique<ThreadNetwork>(rank, boxes));
  }
  return ends;
}

void cut_thread_network(Network& end) {
  static_cast<ThreadNetwork&>(end).cut();
}

}  // namespace ktx::runtime
