#include "lib/runtime/engine/text_chunks.h"

#include <algorithm>
#include <deque>

#include "lib/runtime/engine/forward_watch.h"

namespace ktx::runtime {

bool has_chunks_in_flight(const Engine& engine, int64_t tokens) {
  return engine.goes_ahead() && tokens > engine.chunk_tokens();
}

Result<Forward> forward_in_chunks(Engine& engine, const BatchItem& text,
                                  const std::atomic<bool>* stop,
                                  const std::function<bool(int64_t)>& done) {
  const auto total = static_cast<int64_t>(text.tokens.size());
  const int64_t most = engine.goes_ahead() ? engine.most_forwards() : 1;
  const ForwardWatch watch{stop, {}};
  std::deque<int64_t> in_flight;  // tokens of each
  int64_t begun = 0, finished = 0;
  const auto begin = [&]() -> Result<Forward> {
    BatchItem chunk = text;
    const int64_t count = std::min(total - begun, engine.chunk_tokens());
    chunk.tokens = text.tokens.subspan(static_cast<size_t>(begun), static_cast<size_t>(count));
    if (begun + count < total) chunk.want = Want::None;
    const Forward result = KTX_TRY(engine.begin({&chunk, 1}, {}, &watch));
    if (result != Forward::Done) return result;
    begun += count;
    in_flight.push_back(count);
    return result;
  };
  // The first outcome that is not Done counts; what is behind it ends as well.
  Result<Forward> all = Forward::Done;
  bool goes_on = true;
  const auto good = [&] { return all.ok() && *all == Forward::Done; };
  while (finished < total) {
    while (good() && goes_on && begun < total && std::ssize(in_flight) < most) all = begin();
    if (in_flight.empty()) break;
    const Result<Forward> oldest = engine.finish();
    finished += in_flight.front();
    in_flight.pop_front();
    const bool computed = oldest.ok() && *oldest == Forward::Done;
    if (good() && !computed) all = oldest;
    if (good() && goes_on && done) goes_on = done(finished) || finished == total;
  }
  if (good() && finished < total) return Forward::Stopped;
  return all;
}

}  // namespace ktx::runtime
