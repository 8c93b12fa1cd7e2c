// Pieces of scripts: how Gemma 4 writes thoughts and calls.
export const thought = (text) => `<|channel>thought\n${text}<channel|>`;

const gemma = (value) =>
  typeof value === 'string'
    ? `<|"|>${value}<|"|>`
    : Array.isArray(value)
      ? `[${value.map(gemma).join(',')}]`
      : value !== null && typeof value === 'object'
        ? `{${Object.entries(value).map(([key, inner]) => `${key}:${gemma(inner)}`).join(',')}}`
        : String(value);

export const call = (name, args = {}) => `<|tool_call>call:${name}${gemma(args)}<tool_call|>`;

// A tool that takes a city, in the words of each dialect.
export const cityTool = (name, strict) => ({
  type: 'function',
  function: {
    name,
    description: `Looks up the ${name} of a city`,
    parameters: { type: 'object', properties: { city: { type: 'string' } }, required: ['city'] },
    ...(strict !== undefined && { strict }),
  },
});
export const flatTool = (name) => ({ type: 'function', ...cityTool(name).function });
export const anthropicTool = (name) => {
  const { parameters, ...rest } = cityTool(name).function;
  return { ...rest, input_schema: parameters };
};
