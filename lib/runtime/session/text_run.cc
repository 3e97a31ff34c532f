#include "lib/runtime/session/text_run.h"

namespace ktx::runtime {

void TextRun::take(int64_t count) {
  const auto from = tokens.begin() + begun();
  step_ids.assign(from, from + count);
  draft_tokens = right_draft_tokens = 0;
}

Speculation::Item TextRun::draft_item(int64_t limit) {
  return {&draft, tokens, &sampler, owner, limit, {}};
}

void TextRun::take_draft(const Speculation::Item& item) {
  step_ids.insert(step_ids.end(), item.draft_tokens.begin(), item.draft_tokens.end());
  draft_tokens = std::ssize(item.draft_tokens);
}

BatchItem TextRun::item() {
  BatchItem item{&*sequence, step_ids};
  const bool last = std::ssize(step_ids) - draft_tokens == to_begin();
  item.want = draft_tokens > 0 ? Want::All : last ? Want::Last : Want::None;
  item.snapshots = snapshots;
  item.images = images;
  item.rollback = draft_tokens;
  return item;
}

Result<Forward> TextRun::compute(Engine& engine, int32_t best, ChunkWatch watch,
                                 Speculation* speculation) {
  BatchItem text = item();
  text.best = best;
  if (speculation) {
    watch.one_by_one = true;  // draft tokens are made of what each chunk has given
    watch.done = [&, then = watch.done, before = computed()](int64_t done) mutable {
      show_hidden(*speculation, engine, 0, computed() - std::exchange(before, computed()));
      return !then || then(done);
    };
  }
  return forward_in_chunks(engine, text, watch);
}

void TextRun::show_hidden(Speculation& speculation, Engine& engine, int64_t row, int64_t count) {
  speculation.computed(draft_item(0), engine, {row, computed() - count, count});
}

bool TextRun::verify() {
  if (right_draft_tokens == draft_tokens) return false;
  const int64_t drafted = std::ssize(step_ids) - draft_tokens + right_draft_tokens;
  if (step_ids[static_cast<size_t>(drafted)] != tokens.back()) return false;
  ++right_draft_tokens;
  return true;
}

void TextRun::end_draft(Speculation* speculation) {
  if (speculation) speculation->verified(draft, draft_tokens, right_draft_tokens);
  const int64_t wrong = draft_tokens - right_draft_tokens;
  if (sequence && wrong > 0) sequence->truncate(computed() - wrong);
  draft_tokens = right_draft_tokens = 0;
}

}  // namespace ktx::runtime
