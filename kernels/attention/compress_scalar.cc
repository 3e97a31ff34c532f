// Entries channel by channel, in double.
#include <cmath>

#include "kernels/attention/compress.h"
#include "kernels/attention/kv_element.h"
#include "kernels/attention/kv_row.h"

namespace ktx::kernels {

void compress_scalar(const CompressArgs& a);

namespace {

struct Sum {
  const CompressArgs& args;
  double largest = -INFINITY, weights = 0, rows = 0;

  double score(int64_t position, int64_t channel) const {
    const int64_t head = channel / kCompressedChannels, at = channel % kCompressedChannels;
    if (args.bias == nullptr) return 0;
    const std::byte* row = value_row(args.kv, args.kv.sequence[args.token], head, position);
    const int64_t bias = position % args.attrs.every * args.attrs.channels() + channel;
    return element(args.kv.layout.type, row, at) + args.bias[bias];
  }
  void see(const EntryPart& part, int64_t channel) {
    for (int64_t p = part.begin; p < part.end; ++p) {
      largest = std::fmax(largest, score(p, part.channel + channel));
    }
  }
  void add(const EntryPart& part, int64_t channel) {
    const int64_t c = part.channel + channel;
    for (int64_t p = part.begin; p < part.end; ++p) {
      const double weight = std::exp(score(p, c) - largest);
      const std::byte* row =
          key_row(args.kv, args.kv.sequence[args.token], c / kCompressedChannels, p);
      weights += weight;
      rows += weight * element(args.kv.layout.type, row, c % kCompressedChannels);
    }
  }
};

}  // namespace

void compress_scalar(const CompressArgs& a) {
  const EntryParts parts = parts_of_entry(a.attrs, a.kv.position[a.token] / a.attrs.every);
  for (int64_t c = 0; c < a.attrs.dim; ++c) {
    Sum sum{a};
    sum.see(parts.before, c);
    sum.see(parts.own, c);
    sum.add(parts.before, c);
    sum.add(parts.own, c);
    a.entry[c] = static_cast<float>(sum.rows / sum.weights);
  }
}

}  // namespace ktx::kernels
