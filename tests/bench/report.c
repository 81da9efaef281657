/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Options and rows.
 *
 * A row is printed as soon as it is there, as one JSON object or as one line of a table that also
 * says what the row has to show. Nothing here fails because a target was missed: a slow machine is
 * no error.
 */
#include <getopt.h>
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "tests/bench/harness-internal.h"

static double ratio(const struct bench_row *row)
{
	return row->kind == BENCH_COST ? row->baseline_value / row->value
				       : row->value / row->baseline_value;
}

/* Nothing is compared with what was not measured, or with nothing. */
static bool has_ratio(const struct bench_row *row)
{
	return row->baseline && row->value > 0 && row->baseline_value > 0;
}

static const char *target_variant(const struct bench_target *target)
{
	return target->variant ? target->variant : "product";
}

static const struct bench_target *find_target(const struct bench *bench,
					      const struct bench_row *row)
{
	for (size_t i = 0; i < bench->program->nr_targets; i++) {
		const struct bench_target *target = &bench->program->targets[i];

		if (strcmp(target->name, row->name) == 0 &&
		    strcmp(target_variant(target), row->variant) == 0 &&
		    (target->threads == 0 || target->threads == row->threads) &&
		    (target->pages == 0 || target->pages == row->pages))
			return target;
	}
	return NULL;
}

/* --- JSON ------------------------------------------------------------------------------------- */

/* Three digits say all that a measurement says; whole numbers above 1000. */
static void json_number(const char *key, double value)
{
	const double size = fabs(value);

	printf(",\"%s\":%.*f", key, size >= 1000 ? 0 : size >= 100 ? 1 : size >= 10 ? 2 : 4, value);
}

static void json_row(const struct bench *bench, const struct bench_row *row)
{
	printf("{\"bench\":\"%s\",\"case\":\"%s\",\"variant\":\"%s\"", bench->program->name,
	       row->name, row->variant);
	if (row->pages)
		printf(",\"pages\":%u", row->pages);
	if (row->threads)
		printf(",\"threads\":%u", row->threads);
	printf(",\"unit\":\"%s\"", row->unit);
	json_number("value", row->value);
	if (has_ratio(row)) {
		printf(",\"baseline\":\"%s\"", row->baseline);
		json_number("baseline_value", row->baseline_value);
		json_number("ratio", ratio(row));
	}
	if (row->pages)
		printf(",\"block_order\":%d", row->block_order);
	if (row->pairs)
		printf(",\"pairs\":%u,\"pairs_better\":%u,\"p\":%.3g", row->pairs,
		       row->pairs_better, row->p);
	if (row->instructions > 0) {
		json_number("instructions", row->instructions);
		json_number("baseline_instructions", row->baseline_instructions);
	}
	if (row->quality)
		printf(",\"rounds\":%u,\"discarded\":%u,\"disturbed\":%u", row->quality->rounds,
		       row->quality->discarded, row->quality->disturbed);
	puts("}");
}

static const char *const target_kinds[] = {
	[BENCH_TARGET_RATIO] = "ratio",
	[BENCH_TARGET_VALUE] = "value",
	[BENCH_TARGET_SIGN] = "sign",
};

static void json_targets(const struct bench_program *program)
{
	for (size_t i = 0; i < program->nr_targets; i++) {
		const struct bench_target *target = &program->targets[i];

		printf("{\"bench\":\"%s\",\"case\":\"%s\",\"variant\":\"%s\"", program->name,
		       target->name, target_variant(target));
		if (target->pages)
			printf(",\"pages\":%u", target->pages);
		if (target->threads)
			printf(",\"threads\":%u", target->threads);
		printf(",\"kind\":\"%s\"", target_kinds[target->kind]);
		if (target->must > 0)
			printf(",\"must\":%g", target->must);
		if (target->aim > 0)
			printf(",\"aim\":%g", target->aim);
		puts("}");
	}
}

/* --- the table -------------------------------------------------------------------------------- */

static int digits(double value)
{
	return value >= 1000 ? 0 : value >= 10 ? 1 : 2;
}

static void cell(int width, bool there, const char *prefix, double value)
{
	char text[32] = "";

	if (there)
		snprintf(text, sizeof(text), "%s%.*f", prefix, value >= 1000 ? 0 : 2, value);
	printf(" %*s", width, text);
}

static bool reached(const struct bench_target *target, const struct bench_row *row, bool aim)
{
	const double limit = aim ? target->aim : target->must;

	switch (target->kind) {
	case BENCH_TARGET_RATIO:
		return ratio(row) >= limit;
	case BENCH_TARGET_VALUE:
		return row->value <= limit;
	case BENCH_TARGET_SIGN:
		return ratio(row) > 1 && (aim ? ratio(row) >= limit : row->p <= limit);
	}
	return false;
}

static const char *verdict(struct bench *bench, const struct bench_target *target,
			   const struct bench_row *row)
{
	const bool must = target->must <= 0 || reached(target, row, false);
	const bool aim = target->aim > 0 && reached(target, row, true);

	bench->musts += target->must > 0;
	bench->musts_met += target->must > 0 && must;
	bench->aims += target->aim > 0;
	bench->aims_met += aim;
	return !must ? "MISSED" : aim ? "aim" : "must";
}

static void table_row(struct bench *bench, const struct bench_row *row)
{
	static const char *const prefixes[][2] = {
		[BENCH_TARGET_RATIO] = {">=", ">="},
		[BENCH_TARGET_VALUE] = {"<=", "<="},
		[BENCH_TARGET_SIGN] = {"p<=", ">="},
	};
	const struct bench_target *target = find_target(bench, row);

	if (bench->rows++ == 0)
		printf("%-16s %-29s %7s %3s %3s %9s %-5s  %-14s %9s %8s %9s %9s  %s\n", "case",
		       "variant", "pages", "blk", "thr", "value", "unit", "baseline", "value",
		       "ratio", "must", "aim", "met");
	printf("%-16s %-29s", row->name, row->variant);
	if (row->pages)
		printf(" %7u %3d", row->pages, row->block_order);
	else
		printf(" %7s %3s", "", "");
	if (row->threads)
		printf(" %3u", row->threads);
	else
		printf(" %3s", "");
	printf(" %9.*f %-5s  %-14s", digits(row->value), row->value, row->unit,
	       row->baseline ? row->baseline : "");
	if (has_ratio(row))
		printf(" %9.*f %8.2f", digits(row->baseline_value), row->baseline_value,
		       ratio(row));
	else
		printf(" %9s %8s", "", "");
	if (target) {
		cell(9, target->must > 0, prefixes[target->kind][0], target->must);
		cell(9, target->aim > 0, prefixes[target->kind][1], target->aim);
		printf("  %s", verdict(bench, target, row));
	}
	putchar('\n');
	if (row->pairs)
		bench_note(bench, "better in %u of %u pairs, p = %.3g", row->pairs_better,
			   row->pairs, row->p);
	if (row->instructions > 0)
		bench_note(bench, "instructions: %.1f, baseline %.1f", row->instructions,
			   row->baseline_instructions);
}

void bench_report(struct bench *bench, const struct bench_row *row)
{
	if (bench->json)
		json_row(bench, row);
	else
		table_row(bench, row);
	fflush(stdout);
}

void bench_note(struct bench *bench, const char *format, ...)
{
	va_list args;

	if (bench->json)
		return;
	va_start(args, format);
	printf("    ");
	vprintf(format, args);
	putchar('\n');
	va_end(args);
}

static void summary(const struct bench *bench)
{
	if (bench->json)
		return;
	if (bench->musts)
		printf("must: %u of %u met; aim: %u of %u met\n", bench->musts_met, bench->musts,
		       bench->aims_met, bench->aims);
	printf("samples thrown away as disturbed: %u; disturbed but kept: %u\n", bench->discarded,
	       bench->disturbed);
}

/* --- the program ------------------------------------------------------------------------------ */

static void help(const struct bench_program *program)
{
	printf("Usage: bench-%s [--json] [--quick] [--case NAME]... [--targets]\n\n%s\n\n"
	       "  --json       one JSON object a line instead of a table\n"
	       "  --quick      fewer rounds, 40 seconds at most\n"
	       "  --case NAME  only this case\n"
	       "  --targets    print what the rows have to show, as JSON, and exit\n"
	       "  --help       this\n\nCases:\n",
	       program->name, program->what);
	for (size_t i = 0; i < program->nr_cases; i++)
		printf("  %-16s %s\n", program->cases[i].name, program->cases[i].what);
}

static size_t find_case(const struct bench_program *program, const char *name)
{
	for (size_t i = 0; i < program->nr_cases; i++)
		if (strcmp(program->cases[i].name, name) == 0)
			return i;
	return program->nr_cases;
}

static void run_cases(struct bench *bench, uint64_t chosen)
{
	const struct bench_program *program = bench->program;

	for (size_t i = 0; i < program->nr_cases; i++) {
		const struct bench_case *c = &program->cases[i];

		if (chosen != 0 && !(chosen >> i & 1))
			continue;
		bench_memory_place(0);
		if (c->threads > bench_threads(bench))
			fprintf(stderr, "bench-%s: %s needs %u processors\n", program->name,
				c->name, c->threads);
		else
			c->run(bench);
	}
}

int bench_main(const struct bench_program *program, int argc, char **argv)
{
	static const struct option options[] = {
		{"json", no_argument, NULL, 'j'},	{"quick", no_argument, NULL, 'q'},
		{"case", required_argument, NULL, 'c'}, {"targets", no_argument, NULL, 't'},
		{"help", no_argument, NULL, 'h'},	{NULL, 0, NULL, 0},
	};
	bool json = false, quick = false;
	uint64_t chosen = 0; /* a bit for each case */
	struct bench *bench;
	int option;

	while ((option = getopt_long(argc, argv, "", options, NULL)) != -1) {
		size_t i;

		switch (option) {
		case 'j':
			json = true;
			break;
		case 'q':
			quick = true;
			break;
		case 'c':
			i = find_case(program, optarg);
			if (i == program->nr_cases) {
				fprintf(stderr, "bench-%s: no case %s\n", program->name, optarg);
				return 2;
			}
			chosen |= UINT64_C(1) << i;
			break;
		case 't':
			json_targets(program);
			return 0;
		case 'h':
			help(program);
			return 0;
		default:
			return 2;
		}
	}
	if (optind != argc) {
		fprintf(stderr, "bench-%s: %s?\n", program->name, argv[optind]);
		return 2;
	}
	bench = bench_new(quick, program->alone);
	bench->program = program;
	bench->json = json;
	run_cases(bench, chosen);
	summary(bench);
	bench_free(bench);
	return 0;
}
