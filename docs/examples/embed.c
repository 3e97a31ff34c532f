/* Continues a text greedily with libktx.
 *
 *   cc embed.c -o embed $(pkg-config --cflags --libs ktx)
 *   ./embed model.ktxplan "Once upon a time" 20
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <ktx/ktx.h>

static void check(ktx_status status) {
  if (status == KTX_OK) return;
  fprintf(stderr, "embed: error: %s\n", ktx_error_message());
  exit(1);
}

static int32_t best(const float *logits, size_t count) {
  size_t found = 0;
  for (size_t i = 1; i < count; ++i) {
    if (logits[i] > logits[found]) found = i;
  }
  return (int32_t)found;
}

int main(int argc, char **argv) {
  if (argc != 4) {
    fprintf(stderr, "usage: embed PLAN TEXT TOKENS\n");
    return 2;
  }
  ktx_plan *plan;
  ktx_session *session;
  check(ktx_plan_open(argv[1], NULL, &plan));
  check(ktx_session_new(plan, &session));

  size_t count = 0;
  ktx_tokenize(plan, argv[2], strlen(argv[2]), NULL, 0, &count); /* how many there are */
  int32_t *ids = malloc(count * sizeof *ids);
  check(ktx_tokenize(plan, argv[2], strlen(argv[2]), ids, count, &count));
  check(ktx_session_feed(session, ids, count));
  free(ids);

  for (int i = 0; i < atoi(argv[3]); ++i) {
    const float *logits;
    size_t vocabulary, bytes;
    check(ktx_session_logits(session, &logits, &vocabulary));
    const int32_t id = best(logits, vocabulary);
    if (ktx_is_end(plan, id)) break;
    char text[256];
    check(ktx_text(plan, &id, 1, text, sizeof text, &bytes));
    fwrite(text, 1, bytes, stdout);
    check(ktx_session_feed(session, &id, 1));
  }
  putchar('\n');
  ktx_session_free(session);
  ktx_plan_close(plan);
  return 0;
}
