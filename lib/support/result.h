// Result<T> and Status: one failure, passed up by value.
//
//   Result<Header> read_header(ByteReader& in);
//   Status load(ByteReader& in) {
//     Header header = KTX_TRY(read_header(in));   // returns the error, if any
//     KTX_TRY(check(header));
//     return {};
//   }
//
// An error of another kind is the second argument, as server::ApiError is (api_error.h).
// For the user's many mistakes use DiagSink (diag.h); for our bugs KTX_ASSERT.
// Message form: "file: what, with numbers; what to do", lower-case, no full stop.
#pragma once

#include <cstdio>
#include <cstdlib>
#include <optional>
#include <string>
#include <utility>

namespace ktx {

struct Error {
  std::string message;
};

// Either a T or an E. value() on an error is our bug and aborts.
template <class T, class E = Error>
class [[nodiscard]] Result {
 public:
  using Value = T;
  using Failure = E;
  Result(T value) : value_(std::move(value)) {}
  Result(E error) : error_(std::move(error)) {}

  bool ok() const { return value_.has_value(); }
  explicit operator bool() const { return ok(); }
  const E& error() const { return error_; }
  T& value() { return *value_; }
  const T& value() const { return *value_; }
  T& operator*() { return *value_; }
  const T& operator*() const { return *value_; }
  T* operator->() { return &*value_; }
  const T* operator->() const { return &*value_; }
  T take() { return std::move(*value_); }

 private:
  std::optional<T> value_;
  E error_;
};

template <class E>
class [[nodiscard]] Result<void, E> {
 public:
  using Value = void;
  using Failure = E;
  Result() = default;
  Result(E error) : error_(std::move(error)), ok_(false) {}
  bool ok() const { return ok_; }
  explicit operator bool() const { return ok_; }
  const E& error() const { return error_; }
  void take() {}

 private:
  E error_;
  bool ok_ = true;
};

using Status = Result<void>;

}  // namespace ktx

// The value of a Result, or return its error from the enclosing function.
// (A statement expression: g++ and clang both have it.)
#define KTX_TRY(expression)                                              \
  __extension__({                                                        \
    auto ktx_result = (expression);                                      \
    if (!ktx_result.ok()) {                                              \
      return typename decltype(ktx_result)::Failure{ktx_result.error()}; \
    }                                                                    \
    ktx_result.take();                                                   \
  })

// A broken promise between our own functions. Never used on input data.
#define KTX_ASSERT(condition)                                                              \
  do {                                                                                     \
    if (!(condition)) {                                                                    \
      std::fprintf(stderr, "%s:%d: internal error: %s\n", __FILE__, __LINE__, #condition); \
      std::abort();                                                                        \
    }                                                                                      \
  } while (false)
