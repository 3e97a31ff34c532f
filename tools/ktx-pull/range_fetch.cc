#include "tools/ktx-pull/range_fetch.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <deque>
#include <memory>
#include <optional>

#include "lib/support/strings.h"

namespace ktx::tools {
namespace {

using Clock = std::chrono::steady_clock;

// Bytes of one answer that show that the hub gives something: with fewer, or the rest of a part, it
// counts as one that gives nothing.
constexpr uint64_t kEnough = 64 << 10;

struct Part {
  ByteRange range;
  uint64_t at = 0;     // where the next byte belongs
  uint64_t asked = 0;  // where the transfer began
  int hops = 0;
  bool moved = false;  // the address is that of a redirect
  std::unique_ptr<Transfer> transfer;
};

class RangeFetch {
 public:
  RangeFetch(const Hub& hub, std::string url, std::string what, uint64_t file_bytes,
             const RangeSink& sink)
      : hub_(hub),
        url_(std::move(url)),
        what_(std::move(what)),
        file_bytes_(file_bytes),
        sink_(sink),
        multi_(curl_multi_init()) {}
  ~RangeFetch() {
    for (auto& part : running_) curl_multi_remove_handle(multi_, part->transfer->handle());
    curl_multi_cleanup(multi_);
  }
  RangeFetch(const RangeFetch&) = delete;
  RangeFetch& operator=(const RangeFetch&) = delete;

  Status run(const std::vector<ByteRange>& parts, size_t connections) {
    for (const ByteRange& range : parts)
      waiting_.push_back({range, range.begin, range.begin, 0, false, {}});
    while (!waiting_.empty() || !running_.empty()) {
      while (!waiting_.empty() && running_.size() < connections && Clock::now() >= not_before_) {
        start();
      }
      int active = 0;
      curl_multi_perform(multi_, &active);
      KTX_TRY(failure_);
      int left = 0;
      while (const CURLMsg* const message = curl_multi_info_read(multi_, &left)) {
        if (message->msg == CURLMSG_DONE)
          KTX_TRY(ended(message->easy_handle, message->data.result));
      }
      curl_multi_poll(multi_, nullptr, 0, 100, nullptr);
    }
    return {};
  }

 private:
  void start() {
    auto part = std::make_unique<Part>(std::move(waiting_.front()));
    waiting_.pop_front();
    part->moved = !location_.empty();
    part->asked = part->at;
    Transfer::Request request = hub_.request(part->moved ? location_ : url_);
    request.range = ByteRange{part->at, part->range.end};
    Part* const raw = part.get();
    part->transfer = std::make_unique<Transfer>(
        request, [this, raw](const Transfer& transfer, std::span<const std::byte> bytes) {
          failure_ = take(*raw, transfer, bytes);
          return failure_.ok();
        });
    curl_multi_add_handle(multi_, part->transfer->handle());
    running_.push_back(std::move(part));
  }

  Status take(Part& part, const Transfer& transfer, std::span<const std::byte> bytes) {
    KTX_TRY(check_range(part, transfer));
    if (bytes.size() > part.range.end - part.at) {
      return Error{fmt::format("{}: the hub sends more than was asked for", what_)};
    }
    KTX_TRY(sink_.write(part.at, bytes));
    part.at += bytes.size();
    const bool enough = part.at - part.asked >= kEnough || part.at == part.range.end;
    if (enough) failures_ = 0;
    return {};
  }

  // "bytes 0-1023/4096"
  Status check_range(const Part& part, const Transfer& transfer) const {
    if (transfer.status() == 200) {
      const bool whole = part.asked == 0 && part.range.end == file_bytes_;
      if (whole) return {};
      return Error{
          fmt::format("{}: the hub gives no ranges of files, which are needed here", what_)};
    }
    const std::string range = transfer.header("content-range");
    if (range.starts_with(fmt::format("bytes {}-", part.asked)) &&
        range.ends_with(fmt::format("/{}", file_bytes_))) {
      return {};
    }
    return Error{
        fmt::format("{}: the hub answers with the range '{}', and the file was listed with {} "
                    "bytes; it may have been changed, start again",
                    what_, printable(range), file_bytes_)};
  }

  Status ended(CURL* handle, CURLcode code) {
    const auto found = std::ranges::find_if(
        running_, [&](const auto& part) { return part->transfer->handle() == handle; });
    curl_multi_remove_handle(multi_, handle);
    std::unique_ptr<Part> part = std::move(*found);
    running_.erase(found);
    KTX_TRY(failure_);
    const std::unique_ptr<Transfer> transfer = std::move(part->transfer);
    code = transfer->ended(code);
    if (part->at == part->range.end) return sink_.finished(part->range);
    const long status = transfer->status();
    if (code == CURLE_OK && !transfer->redirect_url().empty()) {
      location_ = KTX_TRY(hub_.redirect(*transfer, part->hops));
      ++part->hops;
      waiting_.push_front(std::move(*part));
      return {};
    }
    // Signed addresses of redirects expire.
    const bool refused = status >= 400 && status < 500 && status != 429 && status != 408;
    if (code == CURLE_OK && refused && !part->moved) return hub_.refusal(what_, status);
    if (refused) location_.clear();
    return again(std::move(*part), *transfer, code);
  }

  Status again(Part part, const Transfer& transfer, CURLcode code) {
    // What is cut together is one failure.
    const bool first = Clock::now() >= not_before_;
    if (first) ++failures_;
    const bool last = failures_ >= kMostFailures;
    const std::chrono::duration<double> waits = not_before_ - Clock::now();
    // A refusal while others wait may be for longer.
    const bool says = first || !transfer.header("retry-after").empty();
    const double wait =
        says && !last ? hub_.wait_before_next(transfer, failures_ - 1, waits.count()) : 0;
    if (last || wait > kLongestWait) {
      if (code == CURLE_OK && transfer.status() >= 400) {
        return hub_.refusal(what_, transfer.status());
      }
      return Error{fmt::format("{}: the connection was cut: {}", what_, transfer.problem(code))};
    }
    part.hops = 0;
    waiting_.push_front(std::move(part));
    not_before_ = std::max(not_before_, Clock::now() + std::chrono::duration_cast<Clock::duration>(
                                                           std::chrono::duration<double>(wait)));
    return {};
  }

  const Hub& hub_;
  const std::string url_, what_;
  const uint64_t file_bytes_;
  const RangeSink& sink_;
  CURLM* multi_;
  std::string location_;  // of a redirect; "": not known
  std::deque<Part> waiting_;
  std::vector<std::unique_ptr<Part>> running_;
  Clock::time_point not_before_ = Clock::now();
  int failures_ = 0;  // in a row, of all connections
  Status failure_;
};

}  // namespace

Status fetch_ranges(const Hub& hub, const std::string& url, const std::string& what,
                    uint64_t file_bytes, const std::vector<ByteRange>& parts, int connections,
                    const RangeSink& sink) {
  return RangeFetch(hub, url, what, file_bytes, sink)
      .run(parts, static_cast<size_t>(std::max(connections, 1)));
}

}  // namespace ktx::tools
