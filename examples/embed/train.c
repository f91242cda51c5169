/* train.c: trains the model of moons.cinch from C, looks at a parameter, saves it, predicts.
 *
 *     cc train.c -I. libmoons.a -lpthread -o train-c        or        cc train.c -I. -L. -lmoons -Wl,-rpath,. -o train-c
 */
#include "moons.h"
#include <stdio.h>
#include <stdlib.h>

enum { EXAMPLES = 640, STEPS = 300 };

static void need(int code) {
  if (code != 0) {
    fprintf(stderr, "error: %s\n", cinch_model_error());
    exit(code);
  }
}

int main(void) {
  static float x[EXAMPLES][2];
  static int32_t label[EXAMPLES];
  FILE *file = fopen("points.csv", "r");
  if (!file || fscanf(file, "x,y,label\n") != 0) {
    fprintf(stderr, "error: points.csv is not there; points.py writes it\n");
    return 3;
  }
  for (int i = 0; i < EXAMPLES; ++i)
    if (fscanf(file, "%f,%f,%d\n", &x[i][0], &x[i][1], &label[i]) != 3)
      return 3;
  fclose(file);

  need(cinch_model_init(0));
  int64_t batch = cinch_model_batch();
  for (int step = 0; step < STEPS; ++step) { /* the examples in their order, again and again */
    int64_t first = step * batch % EXAMPLES;
    const void *fields[] = {x[first], &label[first]};
    double loss;
    need(cinch_model_step(fields, &loss));
    if (step % 50 == 0)
      printf("step %d  loss %.6f\n", step + 1, loss);
  }

  const void *fields[] = {x, label};
  double metrics[2]; /* loss, right */
  need(cinch_model_evaluate(fields, EXAMPLES, metrics));
  printf("loss %.6f, %.1f %% right\n", metrics[0], 100 * metrics[1]);

  cinch_value bias;
  need(cinch_model_parameter("out.bias", &bias));
  printf("out.bias %.6f %.6f\n", ((float *)bias.data)[0], ((float *)bias.data)[1]);

  float points[][2] = {{0, 1}, {1, -0.5}, {0.5, 0.25}}, share[3][2];
  const void *unlabelled[] = {points, NULL};
  void *results[] = {share};
  need(cinch_model_predict(unlabelled, 3, results));
  for (int i = 0; i < 3; ++i)
    printf("(%.2f, %.2f): %.4f %.4f\n", points[i][0], points[i][1], share[i][0], share[i][1]);
  need(cinch_model_save("from-c.safetensors"));
  return 0;
}
