/* Asks a model one question and writes the answer while it comes.
 *   cc -std=c99 ask.c $(pkg-config --cflags --libs carat) -o ask && ./ask "What is nginx?" [model.gguf]
 * Events are JSON; a program would read them with the library it uses for that. This one only looks for "content". */
#include <carat/carat.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Appends `text` as a JSON string. */
static void append_json(char* out, const char* text) {
  char* at = out + strlen(out);
  *at++ = '"';
  for (; *text != '\0'; ++text) {
    const unsigned char c = (unsigned char)*text;
    if (c == '"' || c == '\\') *at++ = '\\';
    if (c < 0x20) {
      at += sprintf(at, "\\u%04x", c);
    } else {
      *at++ = (char)c;
    }
  }
  strcpy(at, "\"");
}

/* Writes the value of "content" in an event, without its escapes. */
static void write_content(const char* event) {
  const char* at = strstr(event, "\"content\":\"");
  if (at == NULL) return;
  for (at += strlen("\"content\":\""); *at != '"' && *at != '\0'; ++at) {
    if (*at == '\\') {
      ++at;
      putchar(*at == 'n' ? '\n' : *at == 't' ? '\t' : *at);
    } else {
      putchar(*at);
    }
  }
  fflush(stdout);
}

static int failed(carat_error* error) {
  fprintf(stderr, "error: %s\n", carat_error_text(error));
  carat_error_free(error);
  return EXIT_FAILURE;
}

int main(int count, char** words) {
  const char* question = count > 1 ? words[1] : "What is nginx?";
  carat_error* error = NULL;
  carat_engine* engine = carat_open(count > 2 ? words[2] : NULL, NULL, NULL, &error);
  if (engine == NULL) return failed(error);

  char* body = malloc(6 * strlen(question) + 100);
  if (body == NULL) return EXIT_FAILURE;
  strcpy(body, "{\"stream\":true,\"messages\":[{\"role\":\"user\",\"content\":");
  append_json(body, question);
  strcat(body, "}]}");
  carat_request* request = carat_chat(engine, body, NULL, NULL, &error);
  free(body);
  if (request == NULL) return failed(error);

  int status = EXIT_SUCCESS;
  char* event;
  while ((event = carat_next(request, -1.0)) != NULL) {
    if (strncmp(event, "{\"error\"", 8) == 0) {
      fprintf(stderr, "%s\n", event);
      status = EXIT_FAILURE;
    } else {
      write_content(event);
    }
    carat_free(event);
  }
  putchar('\n');
  carat_release(request);
  carat_close(engine);
  return status;
}
