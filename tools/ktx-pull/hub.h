// The hub: its address, who may see the token, and small answers.
//
//   const Hub hub = KTX_TRY(Hub::open());                       // HF_ENDPOINT, HF_TOKEN
//   const std::string json = KTX_TRY(hub.get(hub.listing_url(model)));
//
// Redirects are followed here and not by libcurl, so that the token goes to the hub's own scheme,
// host and port alone, and only by https or to this machine.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>

#include "lib/support/result.h"
#include "tools/hub_model.h"
#include "tools/ktx-pull/transfer.h"

namespace ktx::tools {

class Hub {
 public:
  static Result<Hub> open();
  // What it is waiting for, where that takes long.
  std::function<void(const std::string&)> tell = [](const std::string&) {};

  std::string listing_url(const HubModel& model) const;
  std::string file_url(const HubModel& model, const std::string& commit,
                       const std::string& path) const;

  // With the token where it belongs.
  Transfer::Request request(const std::string& url) const;
  // Where an answer leads; an error where that is no place to follow it to.
  Result<std::string> redirect(const Transfer& transfer, int hops) const;
  // A refusal in words: a private model, none of this name.
  Error refusal(const std::string& what, long status) const;

  // Seconds before the next try, after so many failures: as the hub says, where it does. No news
  // where it waits for so many anyway.
  double wait_before_next(const Transfer& transfer, int failures, double waits = 0) const;

  // The body of a small answer, or a range of a large one; tried again where that may help.
  Result<std::string> get(const std::string& url, const std::string& what,
                          std::optional<ByteRange> range = std::nullopt) const;

 private:
  bool is_own(const std::string& url) const;
  std::string endpoint_, token_;
  bool secure_ = true;
};

inline constexpr int kMostFailures = 6;
inline constexpr int kMostHops = 5;
inline constexpr double kLongestWait = 300;

}  // namespace ktx::tools
