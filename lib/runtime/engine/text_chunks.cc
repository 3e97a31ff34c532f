#include "lib/runtime/engine/text_chunks.h"

#include <fmt/format.h>

#include <algorithm>
#include <deque>

#include "lib/runtime/engine/forward_watch.h"
#include "lib/runtime/engine/images_of_pass.h"

namespace ktx::runtime {

bool has_chunks_in_flight(const Engine& engine, int64_t tokens) {
  return engine.goes_ahead() && tokens > engine.chunk_tokens();
}

Result<Forward> forward_in_chunks(Engine& engine, const BatchItem& text, const ChunkWatch& watch) {
  const auto total = static_cast<int64_t>(text.tokens.size());
  const bool ahead = !watch.one_by_one && has_chunks_in_flight(engine, total);
  const int64_t most = ahead ? engine.most_forwards() : 1;
  std::deque<int64_t> in_flight;  // tokens of each
  int64_t begun = 0, finished = 0;
  ForwardWatch of_pass{watch.stop, {}};
  if (watch.progress && !ahead) {
    of_pass.progress = [&](double share) {
      const int64_t count = std::min(total - finished, engine.chunk_tokens());
      watch.progress(static_cast<double>(finished) + share * static_cast<double>(count));
    };
  }
  const auto begin = [&]() -> Result<Forward> {
    BatchItem chunk = text;
    const int64_t start = text.sequence->begun();
    const int64_t count =
        end_outside_images(text.images, start, std::min(total - begun, engine.chunk_tokens())) -
        start;
    if (count == 0) {
      return Error{fmt::format(
          "an image has more tokens than a step of {} may have; give a larger one: --chunk",
          engine.chunk_tokens())};
    }
    chunk.tokens = text.tokens.subspan(static_cast<size_t>(begun), static_cast<size_t>(count));
    if (begun + count < total) chunk.want = Want::None;
    const Forward result = KTX_TRY(engine.begin({&chunk, 1}, {}, &of_pass));
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
    const bool computed = oldest.ok() && *oldest == Forward::Done;
    finished += in_flight.front();
    in_flight.pop_front();
    if (good() && !computed) all = oldest;
    if (!good() || !goes_on) continue;
    if (watch.progress && ahead) watch.progress(static_cast<double>(finished));
    if (watch.done) goes_on = watch.done(finished) || finished == total;
  }
  if (good() && finished < total) return Forward::Stopped;
  return all;
}

}  // namespace ktx::runtime
