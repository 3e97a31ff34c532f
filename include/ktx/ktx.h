/* ktx as a library: opens a plan that ktx-compile made, computes tokens, gives logits.
 *
 *   ktx_plan *plan;
 *   ktx_session *session;
 *   if (ktx_plan_open("model.ktxplan", NULL, &plan) != KTX_OK) die(ktx_error_message());
 *   ktx_session_new(plan, &session);
 *   ktx_session_feed(session, ids, count);               the prompt, then one token at a time
 *   ktx_session_logits(session, &logits, &vocabulary);   of the token after the last one
 *
 * docs/examples/embed.c is a whole program, docs/examples/embed.py the same in Python.
 *
 * Link with -lktx (pkg-config ktx). Everything here is C; the ABI grows by functions and by fields
 * at the end of ktx_options, and changes of any other kind change the library's SONAME.
 *
 * Errors: a function that returns ktx_status gives KTX_OK or says why not; ktx_error_message() has
 * the words. Nothing is printed, no signal handler is installed but one for SIGBUS (a plan that
 * shrinks while it is mapped), and no exception leaves.
 *
 * Threads: every function may be called from any thread. Calls for the sessions of one plan are
 * carried out one after another, each on all threads of the plan.
 */
#ifndef KTX_KTX_H
#define KTX_KTX_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#define KTX_API __attribute__((visibility("default")))

typedef enum ktx_status {
  KTX_OK = 0,
  KTX_FAILED = 1,       /* ktx_error_message() says why and what to do */
  KTX_CONTEXT_FULL = 2, /* the session would get longer than ktx_plan_context(); it is as before */
  KTX_CACHE_FULL = 3,   /* other sessions hold all of the cache; free or truncate one */
  KTX_TOO_SMALL = 4     /* the buffer; the length that is needed was stored */
} ktx_status;

typedef struct ktx_plan ktx_plan;
typedef struct ktx_session ktx_session;

/* Zero means the default everywhere. */
typedef struct ktx_options {
  size_t size;      /* sizeof(ktx_options) */
  int32_t threads;  /* one per core that this process may use */
  int32_t exact;    /* not 0: activations and cache in F32 */
  int64_t context;  /* tokens per session; the plan's default */
  int64_t sessions; /* the cache holds so many whole contexts; the plan's default */
  int32_t verify;   /* not 0: check the hashes of all weights first */
  int32_t reserved; /* 0 */
} ktx_options;

/* "0.1.0"; never freed. */
KTX_API const char* ktx_version(void);

/* What went wrong in the last call of this thread that did not give KTX_OK; valid until the next
 * call of this thread, never NULL. */
KTX_API const char* ktx_error_message(void);

/* Maps and checks the plan; no weight is copied. `options` may be NULL. On success the caller owns
 * *plan, otherwise it is NULL. Safe for untrusted files. */
KTX_API ktx_status ktx_plan_open(const char* path, const ktx_options* options, ktx_plan** plan);
/* NULL is allowed. Sessions stay usable; the plan is unmapped when the last of them is freed. */
KTX_API void ktx_plan_close(ktx_plan* plan);

KTX_API int64_t ktx_plan_vocabulary(const ktx_plan* plan); /* logits in a row */
KTX_API int64_t ktx_plan_context(const ktx_plan* plan);    /* most tokens of a session */

/* The tokens of `bytes` bytes of UTF-8, as a prompt: special tokens in it count as such, and the
 * model's first token is added. At most `capacity` are stored; *count is how many there are, also
 * when that is KTX_TOO_SMALL. `ids` may be NULL with capacity 0. */
KTX_API ktx_status ktx_tokenize(const ktx_plan* plan, const char* text, size_t bytes, int32_t* ids,
                                size_t capacity, size_t* count);
/* The text of tokens, UTF-8 without a 0 at the end; control tokens have none. As above. */
KTX_API ktx_status ktx_text(const ktx_plan* plan, const int32_t* ids, size_t count, char* text,
                            size_t capacity, size_t* bytes);
/* 1 for a token that ends an answer, else 0. */
KTX_API int ktx_is_end(const ktx_plan* plan, int32_t id);

/* An empty text. On success the caller owns *session, otherwise it is NULL. */
KTX_API ktx_status ktx_session_new(ktx_plan* plan, ktx_session** session);
/* NULL is allowed. */
KTX_API void ktx_session_free(ktx_session* session);

/* Appends tokens (at least one) and computes them. */
KTX_API ktx_status ktx_session_feed(ktx_session* session, const int32_t* ids, size_t count);
/* Appends an image and computes it: its tokens, between those that the model has around one. The
 * plan was compiled with its projector (ktx-compile --mmproj), and has a text before it: at least
 * the first token of ktx_tokenize(). `rgb`: the pixels line by line from the top, 8 bits of red,
 * green and blue each, 3 * width * height bytes; decoders are the caller's. A session with an image
 * cannot be saved. */
KTX_API ktx_status ktx_session_feed_image(ktx_session* session, const uint8_t* rgb, int64_t width,
                                          int64_t height);
/* One logit for each token of the vocabulary, for the token after the last one fed. *logits belongs
 * to the session and is valid until its next call. Fails in an empty session. */
KTX_API ktx_status ktx_session_logits(ktx_session* session, const float** logits, size_t* count);
KTX_API int64_t ktx_session_length(const ktx_session* session); /* tokens */
/* Forgets all tokens from `length` on; larger than the length does nothing. An image that loses a
 * token goes as a whole. */
KTX_API void ktx_session_truncate(ktx_session* session, int64_t length);

/* The text with its keys and values, to a file (as a whole or not at all) and back. A file belongs
 * to one plan and precision; the logits afterwards are the same, bit for bit. After a restore that
 * fails the session is empty. */
KTX_API ktx_status ktx_session_save(ktx_session* session, const char* path);
KTX_API ktx_status ktx_session_restore(ktx_session* session, const char* path);

#ifdef __cplusplus
}
#endif

#endif
