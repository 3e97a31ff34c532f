// One text on an engine: its tokens, what the cache has of them, and the draft tokens of a pass. A
// conversation (session.h) and a request of a batch (scheduler/running_request.h) are such texts.
//
//   text.take(1);                                 // its next token enters the pass,
//   Speculation::Item draft = text.draft_item(4);
//   speculation.draft({&draft, 1}, 0, 4);
//   text.take_draft(draft);                       // and what may follow it
//   text.compute(engine, -1, {}, &speculation);   // or item() in a pass of several texts
//   do text.tokens.push_back(...);                // what each row of logits gives
//   while (text.verify());
//   text.end_draft(&speculation);                 // the cache forgets the wrong draft tokens
//
// Which tokens enter a pass, and how a row of logits becomes a token, the caller decides.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "lib/runtime/draft/speculation.h"
#include "lib/runtime/engine/engine.h"
#include "lib/runtime/engine/text_chunks.h"
#include "lib/runtime/sampling/sampler.h"

namespace ktx::runtime {

struct TextRun {
  explicit TextRun(Sampler sampler) : sampler(std::move(sampler)) {}

  int64_t computed() const { return sequence ? sequence->length() : 0; }
  // With passes in flight.
  int64_t begun() const { return sequence ? sequence->begun() : 0; }
  int64_t to_begin() const { return std::ssize(tokens) - begun(); }
  int64_t remaining() const { return std::ssize(tokens) - computed(); }
  std::span<const int32_t> cached() const { return std::span(tokens).first(computed()); }

  // The next `count` tokens enter the pass, without draft tokens.
  void take(int64_t count);
  // At most `limit` draft tokens behind the last token.
  Speculation::Item draft_item(int64_t limit);
  void take_draft(const Speculation::Item& item);
  // What was taken, which stays as it is until the pass has begun.
  BatchItem item();
  // Computes it, chunk by chunk where it is long. `best`: BatchItem's; `speculation` may be null.
  Result<Forward> compute(Engine& engine, int32_t best, ChunkWatch watch, Speculation* speculation);
  // To drafters that read hidden states, after a pass that computed the last `count` tokens in the
  // cache as those from number `row` on.
  void show_hidden(Speculation& speculation, Engine& engine, int64_t row, int64_t count);

  // Whether the last token, which the row behind the last right draft token gave, was drafted: then
  // the next row counts as well.
  bool verify();
  // No further row counts. `speculation` may be null.
  void end_draft(Speculation* speculation);

  Sampler sampler;
  std::string owner;  // of its drafts (Drafter::begin)
  std::vector<int32_t> tokens;
  std::optional<Sequence> sequence;  // while it has a place; the first tokens are in it
  std::vector<ImageTokens> images;   // of the text, rising
  std::vector<int64_t> snapshots;    // places that are worth one, rising (snapshot_places.h)
  std::vector<int32_t> step_ids;     // what the pass computes
  int64_t draft_tokens = 0;          // of these, the last ones
  int64_t right_draft_tokens = 0;    // of these, the first ones: they are in `tokens`
  Speculation::Text draft;
};

}  // namespace ktx::runtime
