// The tokens that may still be drawn, and what takes some of them away. At least one stays.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

namespace ktx::runtime {

struct Candidate {
  int32_t id;
  float logit;
};
using Candidates = std::vector<Candidate>;

// In order of rank: of equal logits the lower id first.
bool better(const Candidate& a, const Candidate& b);
// Puts the `count` best first, in order.
void put_best_first(Candidates& candidates, size_t count);

// The smallest best set with this share of probability.
void keep_top_p(Candidates& candidates, float top_p);
// All with at least this share of the best one's probability.
void keep_min_p(Candidates& candidates, float min_p);
// Those whose surprise is closest to the entropy, with this share of probability; falling.
void keep_typical(Candidates& candidates, float typical_p);
// Drops all with at least `threshold` of the probability but the least likely of them.
void exclude_top_choices(Candidates& candidates, float threshold);
// Those with at most `bound` bits of surprise at this temperature.
void keep_unsurprising(Candidates& candidates, float temperature, double bound);

// The lowest logit that is within `n` standard deviations of the best; logits of -infinity do not
// count.
float sigma_bound(std::span<const float> logits, float n);

// Between temperature - range and temperature + range, by the entropy of the candidates.
float dynamic_temperature(const Candidates& candidates, float temperature, float range,
                          float exponent);

// exp((logit - best) / temperature) of each, and their sum.
double weigh(const Candidates& candidates, float temperature, std::vector<double>& weights);

}  // namespace ktx::runtime
